// One rank of a job over Gloo, for tests that kill processes:
//   gloo_rank <scenario> <victim> <deadline in milliseconds>
// The launcher's variables say which rank this is. The victim does to itself what the scenario
// says; the others must end with status 1 and one line.
//   none     three steps, then all leave
//   before   killed when the ranks have met, before the first collective
//   waiting  killed inside an all-to-all that one rank does not come to
//   moving   killed while large all-to-alls move data
//   between  killed between two steps
//   stopped  stopped between two steps, as one that hangs
//   error    returns an error in its second step
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/gloo_group.h"
#include "collectives/launcher.h"
#include "collectives/rendezvous.h"
#include "device/host_device.h"
#include "device/status.h"

namespace zero {
namespace {

void SleepFor(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

struct Scenario {
  std::string name;
  int victim = -1;
  absl::Duration deadline;
};

class Rank {
 public:
  Rank(const Scenario& scenario, ProcessGroup* group)
      : scenario_(scenario), group_(group), victim_(group->rank() == scenario.victim) {}

  absl::Status Run() {
    ZERO_ASSIGN_OR_RETURN(stream_, device_.CreateStream("rank"));
    const bool moving = scenario_.name == "moving";
    const int64_t bytes = moving ? 8 << 20 : 1000;
    send_.resize(static_cast<size_t>(bytes * group_->size()));
    receive_.resize(send_.size());
    if (victim_ && scenario_.name == "before") raise(SIGKILL);
    if (moving) return Moving(bytes);
    if (scenario_.name == "waiting") return Waiting(bytes);
    const int steps = scenario_.name == "none" ? 3 : 1000000;
    for (int step = 0; step < steps; ++step) {
      if (victim_ && step == 3 && scenario_.name == "between") raise(SIGKILL);
      if (victim_ && step == 3 && scenario_.name == "stopped") raise(SIGSTOP);
      if (victim_ && step == 1 && scenario_.name == "error") {
        return absl::DataLossError("bad sample");
      }
      ZERO_RETURN_IF_ERROR(Exchange(bytes));
      ZERO_RETURN_IF_ERROR(stream_->Synchronize());
      SleepFor(2);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Exchange(int64_t bytes) {
    const AllToAllPiece piece{send_.data(), bytes, receive_.data(), bytes};
    return group_->AllToAll(*stream_, "gradients", {&piece, 1});
  }

  absl::Status Moving(int64_t bytes) {
    std::thread killer;
    for (int step = 0; step < 1000000; ++step) {
      if (victim_ && step == 1) {
        killer = std::thread([] {
          SleepFor(30);
          raise(SIGKILL);
        });
      }
      ZERO_RETURN_IF_ERROR(Exchange(bytes));
      ZERO_RETURN_IF_ERROR(stream_->Synchronize());
    }
    return absl::OkStatus();
  }

  // The rank after the victim does not come before the victim is dead.
  absl::Status Waiting(int64_t bytes) {
    const bool late = group_->rank() == (scenario_.victim + 1) % group_->size();
    if (late) {
      while (group_->Health().ok()) SleepFor(1);
    }
    ZERO_RETURN_IF_ERROR(Exchange(bytes));
    if (victim_) {
      SleepFor(200);
      raise(SIGKILL);
    }
    return stream_->Synchronize();
  }

  const Scenario scenario_;
  ProcessGroup* const group_;
  const bool victim_;
  std::vector<char> send_;
  std::vector<char> receive_;
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
};

absl::Status Main(const Scenario& scenario) {
  ZERO_ASSIGN_OR_RETURN(const std::optional<Launch> launch, ReadLaunch());
  if (!launch.has_value()) return absl::InvalidArgumentError("not started by a launcher");
  RendezvousOptions options = OptionsOf(*launch);
  options.deadline = scenario.deadline;
  options.configuration = absl::StrCat("scenario=", scenario.name);
  ZERO_ASSIGN_OR_RETURN(const auto rendezvous, Rendezvous::Create(options));
  ZERO_ASSIGN_OR_RETURN(const auto group, GlooGroup::Create({rendezvous.get(), scenario.deadline}));
  Rank rank(scenario, group.get());
  const absl::Status status = rank.Run();
  if (!status.ok()) {
    group->Abort(
        absl::Status(status.code(), absl::StrCat("rank ", launch->rank, ": ", status.message())));
    return status;
  }
  return rendezvous->Close();
}

}  // namespace
}  // namespace zero

int main(int count, char** values) {
  if (count != 4) return 2;
  const zero::Scenario scenario{values[1], std::atoi(values[2]),
                                absl::Milliseconds(std::atoi(values[3]))};
  const absl::Status status = zero::Main(scenario);
  if (status.ok()) return 0;
  // One write, so that lines of several ranks stay whole.
  const std::string line = absl::StrCat(status.message(), "\n");
  (void)!write(STDERR_FILENO, line.data(), line.size());
  return 1;
}
