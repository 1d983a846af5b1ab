// Which process of a job this is, as the program that started it says in environment variables.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace zero {

// One process of a job. Nothing here says which device it computes on: the local rank only counts
// the processes of one machine.
struct Launch {
  std::string launcher;  // "torchrun", "mpirun", "srun", or "" where the variables are set by hand
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // -1: not given
  int local_size = 1;   // processes on this machine, where that is given
  std::string address;  // of rank 0
  int port = 0;
  std::string token;  // shared by the ranks of one job; empty: none
};

// The value of an environment variable; nothing where it is not set. One that is set to "" counts
// as not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Of this process.
std::optional<std::string> ProcessEnvironment(const std::string& name);

// Ports that are chosen where MASTER_PORT is not set: kFirstDefaultPort + (a hash of the job's id)
// modulo kDefaultPorts, below the range from which systems take ports for outgoing connections.
inline constexpr int kFirstDefaultPort = 20000;
inline constexpr int kDefaultPorts = 10000;

// Nothing if no launcher started this process. The first complete set of these counts:
//   torchrun, or by hand  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, perhaps LOCAL_RANK and
//                         LOCAL_WORLD_SIZE; by torchrun where TORCHELASTIC_RUN_ID is set
//   mpirun (Open MPI)     OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   srun                  SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID, and
//                         SLURM_STEP_ID, without which a batch script runs and no step
// With the latter two MASTER_ADDR and MASTER_PORT may be set and need not be. The address is then
// 127.0.0.1 where all ranks are on one machine; with srun else the first of SLURM_STEP_NODELIST,
// where rank 0 runs, or SLURM_LAUNCH_NODE_IPADDR. The token is ZERO_JOB_TOKEN, else
// SLURM_JOB_ID.SLURM_STEP_ID, else mpirun's PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid.
// kInvalidArgument names a variable that is missing, is no number or contradicts another, and what
// would be right: RANK and WORLD_SIZE that were left in the environment of mpirun or srun would
// make each process a job of its own.
absl::StatusOr<std::optional<Launch>> ReadLaunch(
    const Environment& environment = ProcessEnvironment);

// The first host of SLURM's short form of a list: "n01" of "n[01-04,7],m2". Empty if there is none.
std::string FirstHost(const std::string& list);

}  // namespace zero
