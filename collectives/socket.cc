#include "collectives/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"

namespace zero {
namespace {

// What a thread that looks up a name leaves behind; the asker may have gone by then.
struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int error = 0;
  std::vector<SocketAddress> addresses;
};

void LookUp(const std::string& host, int port, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_family != AF_INET && at->ai_family != AF_INET6) continue;
    SocketAddress address;
    address.length = at->ai_addrlen;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    addresses.push_back(address);
  }
  if (found != nullptr) freeaddrinfo(found);
  {
    std::lock_guard<std::mutex> lock(lookup.mutex);
    lookup.error = error;
    lookup.addresses = std::move(addresses);
    lookup.done = true;
  }
  lookup.changed.notify_all();
}

void Set(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.fd(), level, option, &value, sizeof(value));
}

Socket NewSocket(int family) {
  return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int Milliseconds(absl::Duration limit) {
  return static_cast<int>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(limit), 1, 24 * 3600 * 1000));
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool SocketAddress::loopback() const {
  if (family() == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool SocketAddress::any() const {
  if (family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

std::string SocketAddress::Host() const {
  char host[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof(host), nullptr, 0,
              NI_NUMERICHOST);
  return host;
}

std::string SocketAddress::Text() const {
  if (family() == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    return absl::StrCat("[", Host(), "]:", ntohs(in6->sin6_port));
  }
  const auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
  return absl::StrCat(Host(), ":", ntohs(in->sin_port));
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, int port,
                                                   absl::Duration limit) {
  // The resolver may block for longer than the caller can wait.
  const auto lookup = std::make_shared<Lookup>();
  try {
    std::thread([host, port, lookup] { LookUp(host, port, *lookup); }).detach();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread to look up '", host, "': ", error.what()));
  }
  std::unique_lock<std::mutex> lock(lookup->mutex);
  if (!lookup->changed.wait_for(lock, std::chrono::milliseconds(Milliseconds(limit)),
                                [&] { return lookup->done; })) {
    return absl::DeadlineExceededError(
        absl::StrCat("the name '", host, "' was not found within ", absl::FormatDuration(limit)));
  }
  if (lookup->error == 0 && !lookup->addresses.empty()) return lookup->addresses;
  return absl::InvalidArgumentError(absl::StrCat(
      "host '", host, "' is unknown: ",
      lookup->error == 0 ? "it has no IPv4 or IPv6 address" : gai_strerror(lookup->error)));
}

SocketOrErrno Listen(const SocketAddress& address) {
  SocketOrErrno result{NewSocket(address.family()), 0};
  if (result.socket.valid()) {
    // Without it a port stays taken for a minute after a job that used it.
    Set(result.socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.family() == AF_INET6) Set(result.socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
    if (bind(result.socket.fd(), name, address.length) == 0 &&
        listen(result.socket.fd(), SOMAXCONN) == 0) {
      return result;
    }
  }
  result.error = errno;
  result.socket = Socket();
  return result;
}

SocketOrErrno Accept(const Socket& listener, SocketAddress& peer) {
  peer.length = sizeof(peer.storage);
  SocketOrErrno result{Socket(accept4(listener.fd(), reinterpret_cast<sockaddr*>(&peer.storage),
                                      &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK)),
                       0};
  if (!result.socket.valid()) result.error = errno;
  return result;
}

SocketOrErrno Connect(const SocketAddress& address, absl::Duration limit) {
  SocketOrErrno result{NewSocket(address.family()), 0};
  if (!result.socket.valid()) {
    result.error = errno;
    return result;
  }
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(result.socket.fd(), name, address.length) != 0) result.error = errno;
  if (result.error == EINPROGRESS) {
    pollfd waiting{result.socket.fd(), POLLOUT, 0};
    result.error = ETIMEDOUT;
    if (poll(&waiting, 1, Milliseconds(limit)) > 0) {
      socklen_t length = sizeof(result.error);
      getsockopt(result.socket.fd(), SOL_SOCKET, SO_ERROR, &result.error, &length);
    }
  }
  // A port of the own machine that nobody listens on may connect to itself.
  if (result.error == 0 && LocalAddress(result.socket).Text() == address.Text()) {
    result.error = ECONNREFUSED;
  }
  if (result.error != 0) result.socket = Socket();
  return result;
}

SocketAddress LocalAddress(const Socket& socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

void Tune(const Socket& socket, absl::Duration limit) {
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, std::max(Milliseconds(limit), 1000));
}

size_t ReadSome(const Socket& socket, char* to, size_t most, int& error) {
  const ssize_t got = recv(socket.fd(), to, most, 0);
  if (got > 0) return static_cast<size_t>(got);
  if (got == 0) {
    error = ECONNRESET;
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    error = errno;
  }
  return 0;
}

size_t WriteSome(const Socket& socket, const char* from, size_t most, int& error) {
  const ssize_t sent = send(socket.fd(), from, most, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) error = errno;
  return 0;
}

std::string ErrnoText(int error) {
  return std::error_code(error, std::generic_category()).message();
}

}  // namespace zero
