#include "collectives/gloo_mesh.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <exception>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collectives/frame.h"
#include "collectives/handshake.h"
#include "collectives/sha256.h"
#include "device/status.h"

namespace zero {
namespace {

// Waits end by Interrupt: a time limit of Gloo's own would say less of what went wrong.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
constexpr uint64_t kGreeting = ~uint64_t{0};

std::string Text(const std::vector<char>& bytes) { return std::string(bytes.begin(), bytes.end()); }

// What a rank tells another one: its nonce, and where its end of their pair listens.
std::string Write(const std::string& nonce, const std::string& address) {
  return FrameWriter(FrameType::kExchange).Text(nonce).Text(address).Finish().fields;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GlooMesh>> GlooMesh::Connect(Rendezvous& rendezvous,
                                                            absl::Duration deadline) {
  std::unique_ptr<GlooMesh> mesh(new GlooMesh(rendezvous.rank(), rendezvous.size()));
  absl::Status opened;
  try {
    opened = mesh->Open(rendezvous, deadline);
  } catch (const std::exception& error) {
    opened = absl::AbortedError(absl::StrCat("rank ", rendezvous.rank(), " at ",
                                             rendezvous.local_address(), ": ", error.what()));
  }
  if (opened.ok()) return mesh;
  // The reason may be that another rank has ended; else the others would wait for this one.
  rendezvous.Abort(opened);
  const absl::Status reason = rendezvous.Health();
  return absl::Status(reason.code(), absl::StrCat("connecting rank ", rendezvous.rank(),
                                                  " to the others over Gloo: ", reason.message()));
}

absl::Status GlooMesh::Open(Rendezvous& rendezvous, absl::Duration deadline) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = rendezvous.local_address();
  const std::shared_ptr<gloo::transport::Device> device =
      gloo::transport::tcp::CreateDevice(attributes);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    context_ = device->createContext(rank_, size_);
    // Pair::connect waits five times as long.
    context_->setTimeout(
        std::max(absl::ToChronoMilliseconds(deadline / 5), std::chrono::milliseconds(10)));
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) context_->createPair(peer);
    }
  }
  // From here on a failure of the job ends what waits.
  struct Callback {
    Rendezvous& of;
    int64_t id;
    ~Callback() { of.RemoveCallback(id); }
  };
  const Callback callback{rendezvous, rendezvous.OnFailure([this](const absl::Status&) {
                            Interrupt();
                            Disconnect();
                          })};

  const std::string nonce = NewNonce();
  std::vector<std::string> own;
  for (int peer = 0; peer < size_; ++peer) {
    const bool self = peer == rank_;
    own.push_back(Write(nonce, self ? "" : Text(context_->getPair(peer)->address().bytes())));
  }
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        rendezvous.ExchangeEach("gloo addresses", own));
  std::vector<std::string> nonces;
  for (int peer = 0; peer < size_; ++peer) {
    const Frame frame{FrameType::kExchange, all[peer]};
    FrameReader reader(frame);
    nonces.push_back(reader.Text());
    const std::string address = reader.Text();
    if (peer == rank_) continue;
    context_->getPair(peer)->connect(std::vector<char>(address.begin(), address.end()));
  }
  return Greet(nonces);
}

absl::Status GlooMesh::Greet(const std::vector<std::string>& nonces) {
  // Anybody can connect to a port that listens, but only ranks know the nonces.
  std::vector<std::string> mine(nonces.size());
  std::vector<std::string> theirs(nonces.size());
  std::vector<Transfer> receives;
  std::vector<Transfer> sends;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    mine[peer] = Sha256(absl::StrCat(nonces[rank_], nonces[peer]));
    theirs[peer].resize(mine[peer].size());
    receives.push_back({peer, theirs[peer].data(), theirs[peer].size(), false, nullptr});
    sends.push_back({peer, mine[peer].data(), mine[peer].size(), false, nullptr});
  }
  int failed_peer = -1;
  ZERO_RETURN_IF_ERROR(Move(kGreeting, receives, sends, failed_peer));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || theirs[peer] == Sha256(absl::StrCat(nonces[peer], nonces[rank_])))
      continue;
    return absl::InvalidArgumentError(absl::StrCat("a stranger took the connection of rank ", peer,
                                                   " to rank ", rank_, "; start the job again"));
  }
  return absl::OkStatus();
}

GlooMesh::~GlooMesh() = default;

bool GlooMesh::interrupted() {
  std::lock_guard<std::mutex> lock(mutex_);
  return interrupted_;
}

void GlooMesh::Interrupt() {
  std::lock_guard<std::mutex> lock(mutex_);
  interrupted_ = true;
  for (gloo::transport::UnboundBuffer* buffer : waiting_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

void GlooMesh::Disconnect() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (context_ == nullptr) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && context_->getPair(peer) != nullptr) context_->getPair(peer)->close();
  }
}

absl::Status GlooMesh::Move(uint64_t number, std::vector<Transfer>& receives,
                            std::vector<Transfer>& sends, int& failed_peer) {
  for (std::vector<Transfer>* side : {&receives, &sends}) {
    for (Transfer& transfer : *side) {
      transfer.buffer = context_->createUnboundBuffer(transfer.data, transfer.bytes);
    }
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (std::vector<Transfer>* side : {&receives, &sends}) {
      for (Transfer& transfer : *side) waiting_.insert(transfer.buffer.get());
    }
  }
  const absl::Status moved = [&]() -> absl::Status {
    try {
      for (Transfer& receive : receives) {
        failed_peer = receive.peer;
        receive.buffer->recv(receive.peer, number);
      }
      for (Transfer& send : sends) {
        failed_peer = send.peer;
        send.buffer->send(send.peer, number);
      }
    } catch (const std::exception& error) {
      return absl::AbortedError(error.what());
    }
    return Wait(receives, sends, failed_peer);
  }();
  if (!moved.ok()) {
    // Which ones were complete? A wait without patience ends the connections, which are of no use
    // any more.
    for (Transfer& receive : receives) {
      for (int attempt = 0; attempt < 2 && !receive.arrived; ++attempt) {
        try {  // the first one may only return that it was interrupted
          receive.arrived = receive.buffer->waitRecv(std::chrono::milliseconds(0));
        } catch (const std::exception&) {
          break;
        }
      }
    }
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (std::vector<Transfer>* side : {&receives, &sends}) {
      for (Transfer& transfer : *side) waiting_.erase(transfer.buffer.get());
    }
  }
  // Nothing touches the memory of a buffer that is gone.
  for (std::vector<Transfer>* side : {&receives, &sends}) {
    for (Transfer& transfer : *side) transfer.buffer.reset();
  }
  return moved;
}

absl::Status GlooMesh::Wait(std::vector<Transfer>& receives, std::vector<Transfer>& sends,
                            int& failed_peer) {
  try {
    for (Transfer& receive : receives) {
      failed_peer = receive.peer;
      if (interrupted() || !receive.buffer->waitRecv(kForever)) return absl::CancelledError();
      receive.arrived = true;
    }
    for (Transfer& send : sends) {
      failed_peer = send.peer;
      if (interrupted() || !send.buffer->waitSend(kForever)) return absl::CancelledError();
    }
  } catch (const std::exception& error) {
    return absl::AbortedError(error.what());
  }
  return absl::OkStatus();
}

}  // namespace zero
