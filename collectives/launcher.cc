#include "collectives/launcher.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero {
namespace {

constexpr int kMostRanks = 1 << 20;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::optional<std::string> Text(const std::string& name) const {
    std::optional<std::string> value = environment_(name);
    if (value.has_value() && value->empty()) return std::nullopt;
    return value;
  }
  bool Has(const std::string& name) const { return Text(name).has_value(); }
  std::string TextOr(const std::string& name, const std::string& otherwise) const {
    return Text(name).value_or(otherwise);
  }

  // `why`: what makes the variable needed.
  absl::StatusOr<std::string> Needed(const std::string& name, const std::string& why) const {
    std::optional<std::string> value = Text(name);
    if (value.has_value()) return *value;
    return absl::InvalidArgumentError(absl::StrCat(
        "environment variable ", name, " is not set, but ", why, "; set it, or unset the others"));
  }
  absl::StatusOr<int> Number(const std::string& name, const std::string& why, int least,
                             int most) const {
    ZERO_ASSIGN_OR_RETURN(const std::string text, Needed(name, why));
    int number = 0;
    if (absl::SimpleAtoi(text, &number) && number >= least && number <= most) return number;
    return absl::InvalidArgumentError(absl::StrCat("environment variable ", name, " is '", text,
                                                   "'; it must be a number from ", least, " to ",
                                                   most));
  }

 private:
  const Environment& environment_;
};

absl::Status ReadRank(const Reader& reader, const std::string& rank, const std::string& size,
                      const std::string& local_rank, const std::string& local_size,
                      Launch& launch) {
  ZERO_ASSIGN_OR_RETURN(launch.size, reader.Number(size, rank + " is", 1, kMostRanks));
  ZERO_ASSIGN_OR_RETURN(launch.rank, reader.Number(rank, size + " is", 0, launch.size - 1));
  if (reader.Has(local_rank)) {
    ZERO_ASSIGN_OR_RETURN(launch.local_rank, reader.Number(local_rank, "", 0, launch.size - 1));
  }
  if (reader.Has(local_size)) {
    ZERO_ASSIGN_OR_RETURN(launch.local_size, reader.Number(local_size, "", 1, launch.size));
  }
  return absl::OkStatus();
}

// MASTER_ADDR and MASTER_PORT where they may be left out.
absl::Status ReadMeetingPoint(const Reader& reader, const std::string& address,
                              const std::string& job, Launch& launch) {
  launch.address = reader.TextOr("MASTER_ADDR", address);
  if (reader.Has("MASTER_PORT")) {
    ZERO_ASSIGN_OR_RETURN(launch.port, reader.Number("MASTER_PORT", "", 1, 65535));
    return absl::OkStatus();
  }
  if (job.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("environment variable MASTER_PORT is not set, and ", launch.launcher,
                     " gave no job id to derive it from; set it to a free port of rank 0's "
                     "machine, the same on every rank"));
  }
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  launch.port = kFirstDefaultPort + static_cast<int>(hash % kDefaultPorts);
  return absl::OkStatus();
}

absl::Status Contradiction(const char* name, int value, const std::string& other,
                           const std::string& others_value, const char* launcher) {
  return absl::InvalidArgumentError(absl::StrCat(
      "environment variable ", name, " is ", value, ", but ", other, " is ", others_value,
      "; unset RANK, WORLD_SIZE and LOCAL_RANK for ", launcher, ", or set ", name, " to the same"));
}

// RANK and WORLD_SIZE may be left from another job.
absl::Status CheckLeftOver(const Reader& reader, const Launch& launch) {
  // torchrun, which mpirun may have started once on each machine, has the last word.
  if (launch.launcher == "torchrun") return absl::OkStatus();
  const struct {
    const char* name;
    int value;
    const char* other;
  } pairs[] = {{"RANK", launch.rank, "OMPI_COMM_WORLD_RANK"},
               {"WORLD_SIZE", launch.size, "OMPI_COMM_WORLD_SIZE"}};
  for (const auto& pair : pairs) {
    const std::string value = reader.TextOr(pair.other, absl::StrCat(pair.value));
    if (value == absl::StrCat(pair.value)) continue;
    return Contradiction(pair.name, pair.value, pair.other, value, "mpirun");
  }
  // A task of srun may start several ranks by hand, but a job has no fewer ranks than tasks.
  if (!launch.launcher.empty() || !reader.Has("SLURM_STEP_ID")) return absl::OkStatus();
  const std::string other =
      reader.Has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  int tasks = 0;
  if (!absl::SimpleAtoi(reader.TextOr(other, ""), &tasks) || tasks <= launch.size) {
    return absl::OkStatus();
  }
  return Contradiction("WORLD_SIZE", launch.size, other, absl::StrCat(tasks), "srun");
}

absl::StatusOr<Launch> ReadTorchrun(const Reader& reader) {
  Launch launch;
  if (reader.Has("TORCHELASTIC_RUN_ID")) launch.launcher = "torchrun";
  ZERO_RETURN_IF_ERROR(
      ReadRank(reader, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", launch));
  ZERO_RETURN_IF_ERROR(CheckLeftOver(reader, launch));
  ZERO_ASSIGN_OR_RETURN(launch.address, reader.Needed("MASTER_ADDR", "RANK and WORLD_SIZE are"));
  ZERO_ASSIGN_OR_RETURN(launch.port,
                        reader.Number("MASTER_PORT", "RANK and WORLD_SIZE are", 1, 65535));
  return launch;
}

std::string SlurmJob(const Reader& reader) {
  const std::string job = reader.TextOr("SLURM_JOB_ID", "");
  return job.empty() ? "" : absl::StrCat(job, ".", reader.TextOr("SLURM_STEP_ID", ""));
}

absl::StatusOr<Launch> ReadMpirun(const Reader& reader) {
  Launch launch;
  launch.launcher = "mpirun";
  ZERO_RETURN_IF_ERROR(ReadRank(reader, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                launch));
  const bool one_machine =
      reader.Has("OMPI_COMM_WORLD_LOCAL_SIZE") && launch.local_size == launch.size;
  if (!one_machine && !reader.Has("MASTER_ADDR")) {
    return absl::InvalidArgumentError(
        "environment variable MASTER_ADDR is not set, but mpirun uses several machines; start with "
        "mpirun -x MASTER_ADDR=<the machine of rank 0>");
  }
  const std::string job =
      reader.TextOr("PMIX_NAMESPACE", reader.TextOr("OMPI_MCA_ess_base_jobid", ""));
  ZERO_RETURN_IF_ERROR(ReadMeetingPoint(reader, "127.0.0.1", job, launch));
  launch.token = job;
  return launch;
}

absl::StatusOr<Launch> ReadSrun(const Reader& reader) {
  Launch launch;
  launch.launcher = "srun";
  const bool step = reader.Has("SLURM_STEP_NUM_TASKS");
  ZERO_RETURN_IF_ERROR(ReadRank(reader, "SLURM_PROCID",
                                step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", "",
                                launch));
  const std::string machines =
      reader.TextOr("SLURM_STEP_NUM_NODES", reader.TextOr("SLURM_NNODES", ""));
  std::string address = "127.0.0.1";
  if (machines != "1") {
    // Rank 0 runs on the first machine of the step; srun itself may have been called elsewhere.
    address = FirstHost(reader.TextOr("SLURM_STEP_NODELIST", ""));
    if (address.empty()) address = reader.TextOr("SLURM_LAUNCH_NODE_IPADDR", "");
  }
  if (address.empty() && !reader.Has("MASTER_ADDR")) {
    return absl::InvalidArgumentError(
        "environment variable MASTER_ADDR is not set, and neither is SLURM_STEP_NODELIST; set "
        "MASTER_ADDR to the machine of rank 0");
  }
  ZERO_RETURN_IF_ERROR(ReadMeetingPoint(reader, address, SlurmJob(reader), launch));
  launch.token = SlurmJob(reader);
  return launch;
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

absl::StatusOr<std::optional<Launch>> ReadLaunch(const Environment& environment) {
  const Reader reader(environment);
  Launch launch;
  if (reader.Has("RANK") || reader.Has("WORLD_SIZE")) {
    ZERO_ASSIGN_OR_RETURN(launch, ReadTorchrun(reader));
  } else if (reader.Has("OMPI_COMM_WORLD_RANK") || reader.Has("OMPI_COMM_WORLD_SIZE")) {
    ZERO_ASSIGN_OR_RETURN(launch, ReadMpirun(reader));
  } else if (reader.Has("SLURM_PROCID") && reader.Has("SLURM_STEP_ID")) {
    ZERO_ASSIGN_OR_RETURN(launch, ReadSrun(reader));
  } else {
    return std::optional<Launch>();
  }
  if (launch.token.empty() && reader.Has("SLURM_STEP_ID")) launch.token = SlurmJob(reader);
  launch.token = reader.TextOr("ZERO_JOB_TOKEN", launch.token);
  return std::optional<Launch>(launch);
}

std::string FirstHost(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  const size_t close = list.find(']', end);
  if (close == std::string::npos) return "";
  host += list.substr(end + 1, list.find_first_of(",-]", end + 1) - end - 1);
  const size_t next = list.find(',', close);
  host += list.substr(close + 1, next == std::string::npos ? next : next - close - 1);
  return host;
}

}  // namespace zero
