#include "collectives/launcher.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"

namespace zero::test {
namespace {

using Variables = std::map<std::string, std::string>;

const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"MASTER_ADDR", "node-a"},
                             {"MASTER_PORT", "29501"}};
// As Open MPI 4.1.4 sets them.
const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_MCA_ess_base_jobid", "1472266241"},
                           {"PMIX_NAMESPACE", "1472266241"}};
const Variables kSrun = {{"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "6"},
                         {"SLURM_LOCALID", "2"},
                         {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};

absl::StatusOr<std::optional<Launch>> Read(const Variables& variables) {
  return ReadLaunch([&](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    if (at == variables.end()) return std::nullopt;
    return at->second;
  });
}

Launch Good(const Variables& variables) {
  const auto launch = Read(variables);
  INFO(launch.status().ToString());
  REQUIRE(launch.ok());
  REQUIRE(launch->has_value());
  return **launch;
}

Variables With(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

TEST_CASE("ReadLaunch: without a launcher there is none", "[collectives]") {
  for (const Variables& variables :
       {Variables{}, Variables{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, Variables{{"RANK", ""}},
        // A batch script, not a step of srun.
        Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}}}) {
    const auto launch = Read(variables);
    REQUIRE(launch.ok());
    CHECK_FALSE(launch->has_value());
  }
}

TEST_CASE("ReadLaunch: torchrun's variables are read", "[collectives]") {
  const Launch launch = Good(kTorchrun);
  CHECK(launch.launcher == "torchrun");
  CHECK(launch.rank == 3);
  CHECK(launch.size == 8);
  CHECK(launch.local_rank == 1);
  CHECK(launch.local_size == 4);
  CHECK(launch.address == "node-a");
  CHECK(launch.port == 29501);
  CHECK(launch.token.empty());
  CHECK(Good(With(kTorchrun, {{"LOCAL_RANK", ""}})).local_rank == -1);
  CHECK(Good(With(kTorchrun, {{"ZERO_JOB_TOKEN", "t"}})).token == "t");
  CHECK(Good(With(kTorchrun, {{"TORCHELASTIC_RUN_ID", ""}})).launcher == "");
}

TEST_CASE("ReadLaunch: mpirun's variables are read and the port follows from the job",
          "[collectives]") {
  const Launch launch = Good(kMpirun);
  CHECK(launch.launcher == "mpirun");
  CHECK(launch.rank == 1);
  CHECK(launch.size == 2);
  CHECK(launch.local_rank == 1);
  CHECK(launch.local_size == 2);
  CHECK(launch.address == "127.0.0.1");
  CHECK(launch.port >= kFirstDefaultPort);
  CHECK(launch.port < kFirstDefaultPort + kDefaultPorts);
  CHECK(launch.port == Good(With(kMpirun, {{"OMPI_COMM_WORLD_RANK", "0"}})).port);
  CHECK(launch.port != Good(With(kMpirun, {{"PMIX_NAMESPACE", "1472266242"}})).port);
  CHECK(launch.token == "1472266241");
  const Launch own = Good(
      With(kMpirun, {{"MASTER_ADDR", "::1"}, {"MASTER_PORT", "7000"}, {"ZERO_JOB_TOKEN", "mine"}}));
  CHECK(own.address == "::1");
  CHECK(own.port == 7000);
  CHECK(own.token == "mine");
}

TEST_CASE("ReadLaunch: srun's variables are read and rank 0 is on the first machine",
          "[collectives]") {
  const Launch launch = Good(kSrun);
  CHECK(launch.launcher == "srun");
  CHECK(launch.rank == 5);
  CHECK(launch.size == 6);
  CHECK(launch.local_rank == 2);
  CHECK(launch.address == "gpu07");
  CHECK(launch.token == "4711.0");
  CHECK(launch.port != Good(With(kSrun, {{"SLURM_STEP_ID", "1"}})).port);
  CHECK(Good(With(kSrun, {{"SLURM_STEP_NODELIST", ""}})).address == "10.0.0.9");
  CHECK(Good(With(kSrun, {{"SLURM_STEP_NUM_NODES", "1"}})).address == "127.0.0.1");
  CHECK(Good(With(kSrun, {{"SLURM_STEP_NUM_TASKS", "7"}})).size == 7);
}

TEST_CASE("ReadLaunch: the launcher nearest to the process counts", "[collectives]") {
  Variables all = With(kSrun, kMpirun);
  CHECK(Good(all).launcher == "mpirun");
  all = With(kSrun, kTorchrun);
  CHECK(Good(all).launcher == "torchrun");
  CHECK(Good(all).token == "4711.0");
}

TEST_CASE("ReadLaunch: variables that are missing or wrong or mixed are named", "[collectives]") {
  const auto refused = [](const Variables& variables, const std::vector<std::string>& words) {
    const absl::Status status = Read(variables).status();
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    for (const std::string& word : words) {
      CHECK_THAT(std::string(status.message()), ContainsSubstring(word));
    }
  };
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    refused(With(kTorchrun, {{name, ""}}), {absl::StrCat(name, " is not set")});
  }
  refused(With(kTorchrun, {{"RANK", "one"}}), {"RANK is 'one'", "a number from 0 to 7"});
  refused(With(kTorchrun, {{"RANK", "8"}}), {"RANK is '8'", "from 0 to 7"});
  refused(With(kTorchrun, {{"RANK", "-1"}}), {"RANK is '-1'", "from 0 to 7"});
  refused(With(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE is '0'", "from 1"});
  refused(With(kTorchrun, {{"LOCAL_RANK", "8"}}), {"LOCAL_RANK is '8'", "from 0 to 7"});
  refused(With(kTorchrun, {{"MASTER_PORT", "70000"}}), {"MASTER_PORT is '70000'", "65535"});
  refused(With(With(kTorchrun, {{"TORCHELASTIC_RUN_ID", ""}}), kMpirun),
          {"RANK is 3", "OMPI_COMM_WORLD_RANK is 1", "unset"});
  refused(With(kMpirun, {{"OMPI_COMM_WORLD_SIZE", ""}}), {"OMPI_COMM_WORLD_SIZE is not set"});
  refused(With(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}}), {"MASTER_ADDR", "-x MASTER_ADDR="});
  refused(With(kMpirun, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_ess_base_jobid", ""}}),
          {"MASTER_PORT is not set", "job id"});
  refused(With(kSrun, {{"SLURM_NTASKS", ""}}), {"SLURM_NTASKS is not set"});
  refused(With(kSrun, {{"SLURM_STEP_NODELIST", ""}, {"SLURM_LAUNCH_NODE_IPADDR", ""}}),
          {"MASTER_ADDR", "SLURM_STEP_NODELIST"});
}

TEST_CASE("ReadLaunch: variables that another job left behind are refused", "[collectives]") {
  const auto refused = [](const Variables& variables, const std::string& words) {
    const absl::Status status = Read(variables).status();
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring(words));
  };
  const Variables alone = {
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29511"}};
  refused(With(kMpirun, alone), "RANK is 0, but OMPI_COMM_WORLD_RANK is 1; unset RANK, WORLD_SIZE");
  refused(With(With(kMpirun, {{"OMPI_COMM_WORLD_RANK", "0"}}), alone),
          "WORLD_SIZE is 1, but OMPI_COMM_WORLD_SIZE is 2; unset RANK, WORLD_SIZE");
  refused(With(kSrun, alone), "WORLD_SIZE is 1, but SLURM_NTASKS is 6; unset RANK, WORLD_SIZE");
  refused(With(With(kSrun, {{"SLURM_STEP_NUM_TASKS", "3"}}), alone),
          "WORLD_SIZE is 1, but SLURM_STEP_NUM_TASKS is 3");
  // A task of srun may start several ranks, and torchrun several jobs.
  CHECK(Good(With(kSrun, With(alone, {{"WORLD_SIZE", "12"}}))).size == 12);
  CHECK(Good(With(kSrun, With(alone, {{"TORCHELASTIC_RUN_ID", "a"}}))).size == 1);
  // mpirun may start torchrun, once on each machine.
  CHECK(Good(With(kTorchrun, kMpirun)).rank == 3);
  // Without a step they are a batch script's.
  CHECK(Good(With(With(kSrun, {{"SLURM_STEP_ID", ""}}), alone)).size == 1);
}

TEST_CASE("FirstHost: the first of a list in SLURM's short form", "[collectives]") {
  CHECK(FirstHost("n01") == "n01");
  CHECK(FirstHost("n01,n02") == "n01");
  CHECK(FirstHost("n[01-04,07]") == "n01");
  CHECK(FirstHost("n[7],m1") == "n7");
  CHECK(FirstHost("rack[2,4]-node,x") == "rack2-node");
  CHECK(FirstHost("") == "");
  CHECK(FirstHost("n[01") == "");
}

}  // namespace
}  // namespace zero::test
