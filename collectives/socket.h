// TCP sockets with an owner: none blocks, none survives exec, none raises SIGPIPE.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace zero {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  bool loopback() const;
  bool any() const;          // 0.0.0.0 or ::, which is no address of a machine
  std::string Host() const;  // numeric
  std::string Text() const;  // "127.0.0.1:29500", "[::1]:29500"
};

// The addresses of a host name or a number. kInvalidArgument if there are none;
// kDeadlineExceeded if the system's resolver does not answer in time.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, int port,
                                                   absl::Duration limit);

// errno where there is no socket: EADDRINUSE, EADDRNOTAVAIL, ...
struct SocketOrErrno {
  Socket socket;
  int error = 0;
};
SocketOrErrno Listen(const SocketAddress& address);
SocketOrErrno Accept(const Socket& listener, SocketAddress& peer);
// Waits until connected, or `limit` has passed (ETIMEDOUT).
SocketOrErrno Connect(const SocketAddress& address, absl::Duration limit);

// Where the socket ends on this machine.
SocketAddress LocalAddress(const Socket& socket);

// Small messages leave at once; what stays unacknowledged for `limit` closes the connection.
void Tune(const Socket& socket, absl::Duration limit);

// Bytes moved; 0: none now. The errno of a failure, or ECONNRESET at the end of the stream, in
// `error`.
size_t ReadSome(const Socket& socket, char* to, size_t most, int& error);
size_t WriteSome(const Socket& socket, const char* from, size_t most, int& error);

// strerror for threads.
std::string ErrnoText(int error);

}  // namespace zero
