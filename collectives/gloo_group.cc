#include "collectives/gloo_group.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/connection.h"
#include "collectives/gloo_mesh.h"
#include "collectives/local_call.h"
#include "device/device.h"
#include "device/status.h"

namespace zero {
namespace {

// What ranks send to each other before the data of a call, so that calls that do not fit together
// move nothing.
struct Header {
  uint64_t hash = 0;  // of the whole description
  std::array<char, 248> text{};

  explicit Header(const std::string& description) {
    hash = 14695981039346656037u;  // FNV-1a
    for (const char c : description) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    }
    std::string shown = description;
    if (shown.size() >= text.size()) shown = shown.substr(0, text.size() - 4) + "...";
    std::memcpy(text.data(), shown.data(), shown.size());
  }
  std::string Text() const { return std::string(text.data(), strnlen(text.data(), text.size())); }
};

// One collective on its way.
struct Call {
  Arrival what;
  uint64_t index = 0;
  // Guarded by the gate of the group:
  bool expired = false;
  bool submitted = false;
  bool done = false;
  absl::Status status;
};

void BlockSigpipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace

// Streams hand calls to threads, which move the data; the next operation of the stream is ready
// when they have. So no operation blocks its stream's scheduler. There are as many threads as calls
// that were on their way at once: streams of two ranks may come to their calls in different orders.
class GlooGroup::Impl {
 public:
  explicit Impl(const Options& options)
      : rendezvous_(options.rendezvous),
        deadline_(options.deadline),
        rank_(options.rendezvous->rank()),
        size_(options.rendezvous->size()) {}

  ~Impl() {
    rendezvous_->RemoveCallback(callback_);
    {
      std::lock_guard<std::mutex> lock(gate_->mutex);
      stop_ = true;
    }
    gate_->changed.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Start() {
    callback_ = rendezvous_->OnFailure([this](const absl::Status& reason) { OnFailure(reason); });
    std::unique_lock<std::mutex> lock(gate_->mutex);
    ZERO_RETURN_IF_ERROR(StartThread([this] { Connect(); }));
    gate_->changed.wait(lock, [&] { return started_; });
    return start_status_;
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  absl::Duration deadline() const { return deadline_; }

  absl::Status Enqueue(const Stream& stream, const char* name, Arrival arrival);

  void Abort(const absl::Status& reason) {
    rendezvous_->Abort(reason);
    // Its callback may run on another thread, after Abort has returned.
    OnFailure(rendezvous_->Health());
    // A callback of the rendezvous, called by a thread that counts as moving until it returns.
    if (serves_ == this) return;
    std::unique_lock<std::mutex> lock(gate_->mutex);
    gate_->changed.wait(lock, [&] { return moving_ == 0; });
  }

  // Takes no lock while all is well: see LocalWorld.
  absl::Status Health() const {
    return failed_.load(std::memory_order_acquire) ? failure_ : absl::OkStatus();
  }

  TrafficTable traffic() const {
    std::lock_guard<std::mutex> lock(traffic_mutex_);
    return traffic_;
  }

 private:
  void OnFailure(const absl::Status& reason);
  absl::Status Check(const Stream& stream, const Arrival& arrival) const;
  void Count(const Arrival& arrival);
  absl::Status Submit(const std::shared_ptr<Call>& call);
  void Expire(Call& call);
  void Fail(const char* name, const absl::Status& reason);

  // With the gate's mutex held.
  template <class F>
  absl::Status StartThread(const F& body);

  // Of the threads:
  void Connect();
  void Work();
  absl::Status Run(Call& call);
  absl::Status MeetOthers(Call& call);
  absl::Status MoveData(Call& call);
  // Why moving ended early, from what is known of all ranks.
  absl::Status Explain(const Call& call, const absl::Status& moved,
                       const std::vector<Transfer>& receives, int failed_peer);
  // The failure of the group, with the call that it ended.
  absl::Status Named(const Call& call, const absl::Status& reason) const;

  inline static thread_local const Impl* serves_ = nullptr;  // of the thread, if a group's own

  Rendezvous* const rendezvous_;
  const absl::Duration deadline_;
  const int rank_;
  const int size_;
  int64_t callback_ = 0;
  int64_t next_index_ = 0;
  mutable std::mutex traffic_mutex_;
  TrafficTable traffic_;

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  // Guarded by gate_->mutex:
  absl::Status failure_;  // written once, before failed_
  std::atomic<bool> failed_{false};
  std::deque<std::shared_ptr<Call>> calls_;
  int idle_ = 0;    // threads that wait for a call
  int moving_ = 0;  // threads that touch memory of a call
  bool stop_ = false;
  bool started_ = false;
  absl::Status start_status_;
  std::vector<std::thread> threads_;

  std::unique_ptr<GlooMesh> mesh_;  // set before started_
};

absl::Status GlooGroup::Impl::Check(const Stream& stream, const Arrival& arrival) const {
  const absl::Status health = Health();
  if (!health.ok()) {
    return absl::AbortedError(absl::StrCat(arrival.Describe(), " on rank ", rank_,
                                           ": the group failed before: ", health.message()));
  }
  for (int64_t piece : arrival.Bytes()) {
    if (piece >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(arrival.Describe(), ": negative size"));
  }
  if (stream.device().kind() == DeviceKind::kHost) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(arrival.Describe(), ": stream '", stream.name(),
                                               "' belongs to a device that is not the host"));
}

void GlooGroup::Impl::Count(const Arrival& arrival) {
  int64_t bytes = 0;
  for (int64_t piece : arrival.Bytes()) bytes += piece;
  std::lock_guard<std::mutex> lock(traffic_mutex_);
  Traffic& traffic = traffic_[arrival.name];
  ++traffic.calls;
  traffic.bytes += bytes * (size_ - 1);
}

absl::Status GlooGroup::Impl::Enqueue(const Stream& stream, const char* name, Arrival arrival) {
  arrival.name = name;
  ZERO_RETURN_IF_ERROR(Check(stream, arrival));
  Count(arrival);
  const auto call = std::make_shared<Call>();
  call->what = std::move(arrival);
  call->index = static_cast<uint64_t>(next_index_++);
  const auto fail = [this, name](const absl::Status& reason) { Fail(name, reason); };

  Operation submit;
  submit.name = name;
  submit.run = [this, call] { return Submit(call); };
  submit.skip = fail;
  ZERO_RETURN_IF_ERROR(stream.Enqueue(std::move(submit)));

  Operation finish;
  finish.name = name;
  finish.gate = gate_;
  finish.ready = [raw = call.get()] { return raw->done || !raw->submitted; };
  // The thread may be using the memory.
  finish.wait_if_skipped = true;
  finish.deadline = deadline_;
  finish.expire = [this, call] { Expire(*call); };
  finish.run = [this, call] {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    return call->status;
  };
  finish.skip = fail;
  return stream.Enqueue(std::move(finish));
}

template <class F>
absl::Status GlooGroup::Impl::StartThread(const F& body) {
  try {
    threads_.emplace_back(body);
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("no thread for Gloo: ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status GlooGroup::Impl::Submit(const std::shared_ptr<Call>& call) {
  {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    if (!failure_.ok()) return Named(*call, failure_);
    if (idle_ <= static_cast<int>(calls_.size())) {
      ZERO_RETURN_IF_ERROR(StartThread([this] { Work(); }));
    }
    call->submitted = true;
    calls_.push_back(call);
  }
  gate_->changed.notify_all();
  return absl::OkStatus();
}

void GlooGroup::Impl::Expire(Call& call) {
  std::lock_guard<std::mutex> lock(gate_->mutex);
  if (call.done) return;
  call.expired = true;
  mesh_->Interrupt();
}

void GlooGroup::Impl::Fail(const char* name, const absl::Status& reason) {
  if (!Health().ok()) return;
  Abort(absl::Status(reason.code(), absl::StrCat("rank ", rank_, " did not finish '", name,
                                                 "': ", reason.message())));
}

void GlooGroup::Impl::OnFailure(const absl::Status& reason) {
  {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    if (!failure_.ok() || reason.ok()) return;
    failure_ = reason;
    failed_.store(true, std::memory_order_release);
    if (started_ && mesh_ != nullptr) mesh_->Interrupt();
  }
  gate_->changed.notify_all();
}

void GlooGroup::Impl::Connect() {
  BlockSigpipe();  // inherited by Gloo's own thread
  absl::StatusOr<std::unique_ptr<GlooMesh>> mesh = GlooMesh::Connect(*rendezvous_, deadline_);
  {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    start_status_ = mesh.status();
    if (mesh.ok()) mesh_ = *std::move(mesh);
    started_ = true;
  }
  gate_->changed.notify_all();
  Work();
}

void GlooGroup::Impl::Work() {
  BlockSigpipe();
  serves_ = this;
  std::unique_lock<std::mutex> lock(gate_->mutex);
  while (true) {
    ++idle_;
    gate_->changed.wait(lock, [&] { return stop_ || !calls_.empty(); });
    --idle_;
    if (calls_.empty()) return;
    const std::shared_ptr<Call> call = std::move(calls_.front());
    calls_.pop_front();
    absl::Status status = failure_;
    if (status.ok()) {
      ++moving_;
      lock.unlock();
      status = Run(*call);
      if (!status.ok()) {
        rendezvous_->Abort(status);
        OnFailure(rendezvous_->Health());
        mesh_->Disconnect();
      }
      lock.lock();
      --moving_;
    }
    call->status = status.ok() ? status : Named(*call, failure_);
    call->done = true;
    gate_->changed.notify_all();
  }
}

absl::Status GlooGroup::Impl::Named(const Call& call, const absl::Status& reason) const {
  const std::string text(reason.message());
  if (text.find(absl::StrCat("'", call.what.name, "'")) != std::string::npos) return reason;
  return absl::Status(reason.code(),
                      absl::StrCat(call.what.Describe(), " on rank ", rank_, ": ", text));
}

absl::Status GlooGroup::Impl::Run(Call& call) {
  if (size_ > 1) ZERO_RETURN_IF_ERROR(MeetOthers(call));
  ZERO_RETURN_IF_ERROR(MoveData(call));
  std::lock_guard<std::mutex> lock(gate_->mutex);
  if (!call.expired) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(call.what.Describe(), " on rank ", rank_,
                                                  " took longer than ",
                                                  absl::FormatDuration(deadline_)));
}

absl::Status GlooGroup::Impl::MeetOthers(Call& call) {
  Header own(call.what.Describe());
  std::vector<Header> headers(static_cast<size_t>(size_), Header(""));
  std::vector<Transfer> receives;
  std::vector<Transfer> sends;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    receives.push_back({peer, &headers[peer], sizeof(Header), false, nullptr});
    sends.push_back({peer, &own, sizeof(Header), false, nullptr});
  }
  int failed_peer = -1;
  const absl::Status moved = mesh_->Move(2 * call.index, receives, sends, failed_peer);
  if (!moved.ok()) return Explain(call, moved, receives, failed_peer);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || headers[peer].hash == own.hash) continue;
    const auto called = [&](int rank) {
      return absl::StrCat("rank ", rank, " called ",
                          rank == rank_ ? own.Text() : headers[rank].Text());
    };
    return absl::InvalidArgumentError(absl::StrCat("collective ", call.index, ": ",
                                                   called(std::min(rank_, peer)), ", ",
                                                   called(std::max(rank_, peer))));
  }
  return absl::OkStatus();
}

absl::Status GlooGroup::Impl::MoveData(Call& call) {
  std::vector<Transfer> receives;
  std::vector<Transfer> sends;
  const auto add = [&](int peer, const void* from, void* to, int64_t bytes) {
    if (bytes == 0) return;
    if (peer == rank_) {
      if (from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
      return;
    }
    receives.push_back({peer, to, static_cast<size_t>(bytes), false, nullptr});
    sends.push_back({peer, const_cast<void*>(from), static_cast<size_t>(bytes), false, nullptr});
  };
  // Each rank begins with its neighbour, so that not all send to the same one.
  for (int i = 0; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    for (const AllToAllPiece& piece : call.what.all_to_all) {
      add(peer, static_cast<const char*>(piece.send) + peer * piece.send_stride,
          static_cast<char*>(piece.receive) + peer * piece.bytes, piece.bytes);
    }
    for (const AllGatherPiece& piece : call.what.all_gather) {
      add(peer, piece.send, static_cast<char*>(piece.receive) + peer * piece.receive_stride,
          piece.bytes);
    }
  }
  if (receives.empty()) return absl::OkStatus();
  int failed_peer = -1;
  const absl::Status moved = mesh_->Move(2 * call.index + 1, receives, sends, failed_peer);
  return moved.ok() ? moved : Explain(call, moved, receives, failed_peer);
}

absl::Status GlooGroup::Impl::Explain(const Call& call, const absl::Status& moved,
                                      const std::vector<Transfer>& receives, int failed_peer) {
  const bool expired = [&] {
    std::lock_guard<std::mutex> lock(gate_->mutex);
    return call.expired;
  }();
  if (absl::IsCancelled(moved) && expired) {
    std::vector<int> missing;
    for (const Transfer& receive : receives) {
      const bool known = !missing.empty() && missing.back() == receive.peer;
      if (!receive.arrived && !known) missing.push_back(receive.peer);
    }
    std::sort(missing.begin(), missing.end());
    if (missing.empty()) missing.push_back(failed_peer);  // it does not take what was sent
    return absl::DeadlineExceededError(absl::StrCat(call.what.Describe(), ": rank ", rank_,
                                                    " waited ", absl::FormatDuration(deadline_),
                                                    " for rank ", absl::StrJoin(missing, ", ")));
  }
  // A connection ended. Which rank died first is what rank 0 knows; it tells soon.
  const SteadyTime until = SteadyNow() + Bounded(kVerdictTime);
  while (SteadyNow() < until) {
    ZERO_RETURN_IF_ERROR(rendezvous_->Health());
    if (rendezvous_->HasLeft(failed_peer)) {
      return absl::AbortedError(absl::StrCat(call.what.Describe(), " on rank ", rank_, ": rank ",
                                             failed_peer, " has left the job"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return absl::AbortedError(absl::StrCat(call.what.Describe(), " on rank ", rank_,
                                         ": the connection to rank ", failed_peer,
                                         " broke: ", moved.message()));
}

absl::StatusOr<std::unique_ptr<GlooGroup>> GlooGroup::Create(const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  ZERO_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<GlooGroup>(new GlooGroup(std::move(impl)));
}

GlooGroup::GlooGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GlooGroup::~GlooGroup() = default;

int GlooGroup::rank() const { return impl_->rank(); }
int GlooGroup::size() const { return impl_->size(); }
absl::Duration GlooGroup::deadline() const { return impl_->deadline(); }

absl::Status GlooGroup::AllToAll(const Stream& stream, const char* name,
                                 absl::Span<const AllToAllPiece> pieces) {
  Arrival arrival;
  arrival.kind = CollectiveKind::kAllToAll;
  arrival.all_to_all.assign(pieces.begin(), pieces.end());
  return impl_->Enqueue(stream, name, std::move(arrival));
}

absl::Status GlooGroup::AllGather(const Stream& stream, const char* name,
                                  absl::Span<const AllGatherPiece> pieces) {
  Arrival arrival;
  arrival.kind = CollectiveKind::kAllGather;
  arrival.all_gather.assign(pieces.begin(), pieces.end());
  return impl_->Enqueue(stream, name, std::move(arrival));
}

absl::Status GlooGroup::Barrier(const Stream& stream, const char* name) {
  return impl_->Enqueue(stream, name, Arrival());
}

void GlooGroup::Abort(const absl::Status& reason) { impl_->Abort(reason); }
absl::Status GlooGroup::Health() const { return impl_->Health(); }
TrafficTable GlooGroup::traffic() const { return impl_->traffic(); }

}  // namespace zero
