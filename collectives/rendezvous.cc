#include "collectives/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/connection.h"
#include "collectives/handshake.h"
#include "collectives/hub_link.h"
#include "collectives/member_link.h"
#include "device/status.h"

namespace zero {
namespace {

absl::Status CheckOptions(const RendezvousOptions& options) {
  if (options.size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job of ", options.size, " ranks; it must have at least 1"));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " of a job of ",
                                                   options.size, "; it must be from 0 to ",
                                                   options.size - 1));
  }
  if (options.size > 1 && (options.port < 1 || options.port > 65535)) {
    return absl::InvalidArgumentError(
        absl::StrCat("MASTER_PORT is ", options.port, "; it must be from 1 to 65535"));
  }
  if (options.size == 1 || !options.token.empty()) return absl::OkStatus();
  ZERO_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                        Resolve(options.address, options.port, options.deadline));
  for (const SocketAddress& address : addresses) {
    if (address.loopback()) continue;
    if (address.any()) return NotOneMachine(options);
    return absl::InvalidArgumentError(absl::StrCat(
        "MASTER_ADDR is '", options.address,
        "', which other machines can reach, and the job has no token; set ZERO_JOB_TOKEN to a "
        "secret, the same on every rank, or use 127.0.0.1"));
  }
  return absl::OkStatus();
}

}  // namespace

RendezvousOptions OptionsOf(const Launch& launch) {
  RendezvousOptions options;
  options.rank = launch.rank;
  options.size = launch.size;
  options.address = launch.address;
  options.port = launch.port;
  options.token = launch.token;
  return options;
}

class Rendezvous::Impl {
 public:
  Impl(const RendezvousOptions& options, std::unique_ptr<ControlLink> link, Socket wake)
      : options_(options),
        link_(std::move(link)),
        local_address_(link_->local_address()),
        wake_(std::move(wake)),
        left_(static_cast<size_t>(options.size), false) {
    link_->set_receiver([this](const Frame& frame) { Receive(frame); });
  }
  ~Impl() {
    stop_.store(true);
    Wake();
    if (thread_.joinable()) thread_.join();
    link_->Finish();
  }

  absl::Status Start() {
    try {
      thread_ = std::thread([this] { Serve(); });
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no thread for the rendezvous: ", error.what()));
    }
    return absl::OkStatus();
  }

  const RendezvousOptions& options() const { return options_; }
  const std::string& local_address() const { return local_address_; }

  absl::Status Health() const {
    return failed_.load(std::memory_order_acquire) ? failure_ : absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& name,
                                                    const std::vector<std::string>& values) {
    ZERO_RETURN_IF_ERROR(Health());
    const uint64_t index = next_exchange_++;
    FrameWriter frame(FrameType::kExchange);
    frame.Number(index).Text(name);
    for (const std::string& value : values) frame.Text(value);
    Submit(frame.Finish());
    std::unique_lock<std::mutex> lock(mutex_);
    const auto done = [&] { return !failure_.ok() || exchanged_.count(index) != 0; };
    if (!changed_.wait_for(lock, Bounded(options_.deadline + kVerdictTime), done)) {
      lock.unlock();
      Fail(absl::DeadlineExceededError(
          absl::StrCat("exchange '", name, "': rank ", options_.rank, " waited ",
                       absl::FormatDuration(options_.deadline), " for an answer of rank 0")));
      return Health();
    }
    if (exchanged_.count(index) == 0) return failure_;
    std::vector<std::string> answer = std::move(exchanged_[index]);
    exchanged_.erase(index);
    return answer;
  }

  void SetAnswer(const std::string& subject, std::function<std::string()> answer) {
    std::lock_guard<std::mutex> lock(answers_mutex_);
    if (answer) {
      answers_[subject] = std::move(answer);
    } else {
      answers_.erase(subject);
    }
  }

  int64_t Ask(const std::string& subject) {
    int64_t number = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      number = static_cast<int64_t>(questions_.size());
      questions_.emplace_back(left_.size());
    }
    Submit(
        FrameWriter(FrameType::kAsk).Number(static_cast<uint64_t>(number)).Text(subject).Finish());
    return number;
  }

  std::vector<std::optional<std::string>> Answers(int64_t question) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return questions_[static_cast<size_t>(question)];
  }

  void Agree(int64_t index, const std::string& text) {
    Submit(FrameWriter(FrameType::kAgree).Number(static_cast<uint64_t>(index)).Text(text).Finish());
  }

  void Abort(const absl::Status& reason) {
    if (reason.ok()) return;
    if (failed_.load(std::memory_order_acquire)) return;
    Submit(FrameWriter(FrameType::kAbort).Failure(reason).Finish());
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (changed_.wait_for(lock, Bounded(kVerdictTime), [&] { return !failure_.ok(); })) return;
    }
    Fail(reason);
  }

  int64_t OnFailure(std::function<void(const absl::Status&)> callback) {
    std::lock_guard<std::mutex> lock(callbacks_mutex_);
    const int64_t id = next_callback_++;
    if (called_) {
      callback(Health());
    } else {
      callbacks_[id] = std::move(callback);
    }
    return id;
  }

  void RemoveCallback(int64_t id) {
    std::lock_guard<std::mutex> lock(callbacks_mutex_);
    callbacks_.erase(id);
  }

  bool HasLeft(int rank) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return left_[static_cast<size_t>(rank)];
  }

  absl::Status Close() {
    ZERO_RETURN_IF_ERROR(Health());
    Submit(FrameWriter(FrameType::kLeave).Finish());
    // The hub is in rank 0's process: it goes last.
    const auto gone = [&](int rank) { return left_[static_cast<size_t>(rank)]; };
    const auto done = [&] {
      if (!failure_.ok()) return true;
      for (int rank = 0; rank < options_.size; ++rank) {
        if ((rank == options_.rank || options_.rank == 0) && !gone(rank)) return false;
      }
      return true;
    };
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, Bounded(options_.deadline), done)) return failure_;
    std::vector<int> staying;
    for (int rank = 0; rank < options_.size; ++rank) {
      if (!gone(rank)) staying.push_back(rank);
    }
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", options_.rank, " leaves the job, but waited ",
                     absl::FormatDuration(options_.deadline), " for rank ",
                     options_.rank == 0 ? absl::StrJoin(staying, ", ") : "0"));
  }

 private:
  // To the hub, by the thread that owns the link.
  void Submit(Frame frame) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      outbox_.push_back(std::move(frame));
    }
    Wake();
  }

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_.fd(), &one, sizeof(one));
  }

  void Serve() {
    while (!stop_.load()) {
      link_->Poll(wake_.fd(), absl::Seconds(1));
      uint64_t count = 0;
      (void)!read(wake_.fd(), &count, sizeof(count));
      std::deque<Frame> outbox;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        outbox.swap(outbox_);
      }
      for (const Frame& frame : outbox) link_->Submit(frame);
    }
  }

  void Receive(const Frame& frame) {
    FrameReader reader(frame);
    if (frame.type == FrameType::kFailed) return Fail(reader.Failure());
    if (frame.type == FrameType::kExchanged) {
      const uint64_t index = reader.Number();
      std::vector<std::string> values;
      while (reader.ok() && !reader.AtEnd()) values.push_back(reader.Text());
      if (!reader.ok() || values.size() != left_.size()) return;
      std::lock_guard<std::mutex> lock(mutex_);
      exchanged_[index] = std::move(values);
    } else if (frame.type == FrameType::kLeft) {
      const uint64_t rank = reader.Number();
      if (!reader.ok() || rank >= left_.size()) return;
      std::lock_guard<std::mutex> lock(mutex_);
      left_[rank] = true;
    } else if (frame.type == FrameType::kAsked) {
      Reply(reader);
    } else if (frame.type == FrameType::kAnswered) {
      const uint64_t rank = reader.Number();
      const uint64_t question = reader.Number();
      std::string answer = reader.Text();
      std::lock_guard<std::mutex> lock(mutex_);
      if (!reader.ok() || rank >= left_.size() || question >= questions_.size()) return;
      questions_[question][rank] = std::move(answer);
    }
    changed_.notify_all();
  }

  void Reply(FrameReader& reader) {
    const uint64_t asker = reader.Number();
    const uint64_t question = reader.Number();
    const std::string subject = reader.Text();
    if (!reader.ok()) return;
    std::string answer;
    {
      std::lock_guard<std::mutex> lock(answers_mutex_);
      const auto found = answers_.find(subject);
      if (found != answers_.end()) answer = found->second();
    }
    Submit(FrameWriter(FrameType::kAnswer).Number(asker).Number(question).Text(answer).Finish());
  }

  void Fail(const absl::Status& reason) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      // A rank that has left is no longer interested.
      if (!failure_.ok() || left_[static_cast<size_t>(options_.rank)]) return;
      failure_ = reason;
      failed_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
    std::lock_guard<std::mutex> lock(callbacks_mutex_);
    called_ = true;
    for (const auto& [id, callback] : callbacks_) callback(reason);
  }

  const RendezvousOptions options_;
  const std::unique_ptr<ControlLink> link_;  // of the thread, while it runs
  const std::string local_address_;
  const Socket wake_;
  uint64_t next_exchange_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::deque<Frame> outbox_;
  absl::Status failure_;  // written once, before failed_
  std::atomic<bool> failed_{false};
  std::map<uint64_t, std::vector<std::string>> exchanged_;
  std::vector<bool> left_;
  std::vector<std::vector<std::optional<std::string>>> questions_;  // what each rank has answered

  std::mutex answers_mutex_;  // held while one is made
  std::map<std::string, std::function<std::string()>> answers_;

  std::mutex callbacks_mutex_;  // held while they run
  std::map<int64_t, std::function<void(const absl::Status&)>> callbacks_;
  int64_t next_callback_ = 0;
  bool called_ = false;

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Create(const RendezvousOptions& given) {
  RendezvousOptions options = given;
  if (options.version.empty()) options.version = LibraryVersion();
  ZERO_RETURN_IF_ERROR(CheckOptions(options));
  Socket wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no event for the rendezvous: ", ErrnoText(errno)));
  }
  std::unique_ptr<ControlLink> link;
  if (!options.failure.ok()) {
    // The others learn of it, or of what another rank brought first.
    if (options.rank == 0) {
      (void)HubLink::Gather(options);
    } else {
      (void)MemberLink::Join(options);
    }
    return options.failure;
  }
  if (options.rank == 0) {
    ZERO_ASSIGN_OR_RETURN(link, HubLink::Gather(options));
  } else {
    ZERO_ASSIGN_OR_RETURN(link, MemberLink::Join(options));
  }
  auto impl = std::make_unique<Impl>(options, std::move(link), std::move(wake));
  ZERO_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Rendezvous>(new Rendezvous(std::move(impl)));
}

Rendezvous::Rendezvous(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Rendezvous::~Rendezvous() = default;

int Rendezvous::rank() const { return impl_->options().rank; }
int Rendezvous::size() const { return impl_->options().size; }
absl::Duration Rendezvous::deadline() const { return impl_->options().deadline; }
const std::string& Rendezvous::local_address() const { return impl_->local_address(); }

absl::StatusOr<std::vector<std::string>> Rendezvous::Exchange(const std::string& name,
                                                              const std::string& value) {
  return impl_->Exchange(name, {value});
}
absl::StatusOr<std::vector<std::string>> Rendezvous::ExchangeEach(
    const std::string& name, const std::vector<std::string>& values) {
  if (values.size() != static_cast<size_t>(size())) {
    return absl::InvalidArgumentError(absl::StrCat("exchange '", name, "': rank ", rank(), " has ",
                                                   values.size(), " values for ", size(),
                                                   " ranks; it must have one for each"));
  }
  return impl_->Exchange(name, values);
}
void Rendezvous::SetAnswer(const std::string& subject, std::function<std::string()> answer) {
  impl_->SetAnswer(subject, std::move(answer));
}
int64_t Rendezvous::Ask(const std::string& subject) { return impl_->Ask(subject); }
std::vector<std::optional<std::string>> Rendezvous::Answers(int64_t question) const {
  return impl_->Answers(question);
}
void Rendezvous::Agree(int64_t index, const std::string& text) { impl_->Agree(index, text); }
void Rendezvous::Abort(const absl::Status& reason) { impl_->Abort(reason); }
absl::Status Rendezvous::Health() const { return impl_->Health(); }
int64_t Rendezvous::OnFailure(std::function<void(const absl::Status&)> callback) {
  return impl_->OnFailure(std::move(callback));
}
void Rendezvous::RemoveCallback(int64_t id) { impl_->RemoveCallback(id); }
bool Rendezvous::HasLeft(int rank) const { return impl_->HasLeft(rank); }
absl::Status Rendezvous::Close() { return impl_->Close(); }

}  // namespace zero
