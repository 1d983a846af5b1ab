// zero-train: trains a LLaMA model on a text or tokens, its state sharded over ranks.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/host_memory.h"
#include "device/status.h"
#include "examples/llama/model_description.h"
#include "examples/support/memory.h"
#include "examples/support/program.h"
#include "examples/support/text.h"
#include "examples/train/compare_stages.h"
#include "examples/train/config_file.h"
#include "examples/train/cost.h"
#include "examples/train/groups.h"
#include "examples/train/load.h"
#include "examples/train/memory_limits.h"
#include "examples/train/metrics.h"
#include "examples/train/options.h"
#include "examples/train/overwrite.h"
#include "examples/train/processes.h"
#include "examples/train/progress.h"
#include "examples/train/rank_device.h"
#include "examples/train/resume.h"
#include "examples/train/run.h"
#include "examples/train/run_folder.h"
#include "examples/train/save.h"
#include "examples/train/signals.h"
#include "io/folder.h"
#include "kernels/simd_targets.h"
#include "zero/offload/offload_plan.h"
#include "zero/save/staging_folder.h"

namespace zero::train {
namespace {

constexpr const char* kProgram = "zero-train";

void PrintConfiguration(const Options& options, const llama::LlamaConfig& model,
                        const SavedWeights* weights, const llama::TokenDataset& data,
                        const ResumePoint& point, const std::string& machine) {
  std::cout << "model       " << options.model << ": "
            << support::WithSeparators(llama::ParameterCount(model)) << " parameters in "
            << options.dtype << ", " << model.num_hidden_layers << " layers of "
            << model.hidden_size << ", " << model.num_attention_heads << " heads, "
            << model.num_key_value_heads << " of keys and values\n"
            << "weights     "
            << (!point.path.empty() ? absl::StrCat("those of ", point.path)
                : weights == nullptr
                    ? absl::StrCat("random, of --seed ", options.seed)
                    : absl::StrCat(weights->files().path(), ": ", weights->Summary()))
            << '\n';
  for (const std::string& note : model.notes) std::cout << "note        " << note << '\n';
  if (weights != nullptr) {
    for (const std::string& note : weights->files().notes()) {
      std::cout << "note        " << note << '\n';
    }
    if (!weights->Ignored().empty()) std::cout << "ignored     " << weights->Ignored() << '\n';
  }
  std::cout << "data        " << options.data << ": " << support::WithSeparators(data.tokens())
            << " " << data.Unit() << ", " << support::WithSeparators(data.samples())
            << " samples of " << options.sequence_length
            << (options.shuffle ? ", shuffled\n" : ", in order\n") << "step        "
            << support::WithSeparators(TokensPerStep(options)) << " tokens: " << options.ranks
            << " ranks x " << options.accumulation << " passes x " << options.micro_batch
            << " samples x " << options.sequence_length << '\n'
            << DescribeGroups(options, model) << "machine     " << machine << '\n'
            << DescribeConfigFile(options);
  const bool own = options.file.has_value() && options.file->config.schedule;
  if (!own && options.warmup_steps > options.steps) {
    std::cout << "note        --warmup_steps is " << options.warmup_steps << ": the run ends after "
              << options.steps << " steps, before its rate is the highest\n";
  }
}

// `threads`: of the ranks of this process.
void PrintPlan(const Options& options, const Cost& cost, int threads) {
  std::cout << DescribeOffload(options.offload, cost.offloaded_bytes(), cost.disk_bytes, threads,
                               UpdatesDuringBackward(OptimizerConfig(options)));
  std::cout << "stage " << options.stage << "     " << support::Megabytes(cost.total_bytes())
            << " per rank"
            << (options.offload.any() ? absl::StrCat(", ", support::Megabytes(cost.host_bytes()),
                                                     " of it on the host:")
                                      : ":");
  const char* separator = " ";
  for (int c = 0; c < kMemoryCategories; ++c) {
    const int64_t bytes = cost.memory[static_cast<size_t>(c)];
    if (bytes < 5000) continue;  // would be 0.00
    std::cout << separator << Name(static_cast<MemoryCategory>(c)) << ' '
              << support::Megabytes(bytes);
    separator = ", ";
  }
  std::cout << std::endl;
}

// What of a run is known beside its status.
struct Ending {
  bool meets = false;    // this process has begun to meet the others
  uint64_t signals = 0;  // that ended it before anything was saved
};

// Whether the run could be gone on with from its end.
absl::Status LastCheckpoint(const RunEnd& end) {
  if (end.saved.ok()) return absl::OkStatus();
  return absl::Status(end.saved.code(), absl::StrCat("the checkpoint of step ", end.step,
                                                     " is not saved: ", end.saved.message()));
}

// The line of a run that signals stopped.
std::string DescribeStop(const Options& options, const RunEnd& end) {
  const bool any = end.step > end.first_step;
  const char* kept = end.saved.ok() ? "; --resume goes on" : "";
  if (options.checkpoint_dir.empty()) {
    kept = "; nothing is saved, as there is no --checkpoint_dir";
  } else if (end.step == 0) {
    kept = "; there is nothing to save";
  }
  return absl::StrCat("stopped by ", StopSignalName(end.signals),
                      any ? " after step " : " before step ", any ? end.step : end.step + 1, kept,
                      options.output.empty() ? "" : "; --output is not written");
}

// The folder of --output, without what runs that were killed in their last save have left in it.
absl::StatusOr<RunFolder> PrepareOutput(const std::string& path, const RunFolder& checkpoints) {
  for (const char* name : {"model.safetensors", "config.json"}) {
    std::error_code error;
    if (path.empty() || !std::filesystem::is_directory(path + "/" + name, error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--output: '", path, "' cannot be written to: its ", name, " is a folder"));
  }
  ZERO_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Prepare("--output", path, &checkpoints));
  if (path.empty() || folder.open_to_others()) return folder;
  ZERO_ASSIGN_OR_RETURN(const std::vector<std::string> left, InterruptedSaves(path));
  for (const std::string& save : left) ZERO_RETURN_IF_ERROR(RemoveTree(save));
  return folder;
}

// `print`: what is known of the run, when nothing stands in its way any more. `checkpoints`: the
// folder of --checkpoint_dir, on rank 0.
absl::Status Train(Job job, const ResumePoint& point, const RunFolder& checkpoints,
                   const std::function<void()>& print, Ending& ending) {
  const Options& options = job.options;
  ZERO_ASSIGN_OR_RETURN(const Cost cost, PlanCost(options, job.model));
  // Rank 0 writes for all.
  const bool writes = job.group == nullptr || job.group->rank() == 0;
  ZERO_ASSIGN_OR_RETURN(const RunFolder output,
                        PrepareOutput(writes ? options.output : "", checkpoints));
  RemoveOnSignals(output.traces());
  ZERO_ASSIGN_OR_RETURN(MetricsFile metrics,
                        MetricsFile::Create(writes ? options.metrics : "", point.step));
  RemoveOnSignals(metrics.traces());
  print();
  PrintPlan(options, cost, job.pool->threads());
  for (const std::string& note : point.notes) std::cout << "resume      " << note << std::endl;
  for (const RunFolder* folder : {&checkpoints, &output}) {
    if (!folder->open_to_others()) continue;
    std::cout << "note        " << folder->path()
              << ": its file system has no locks; only this run may write there" << std::endl;
  }
  if (metrics.open_to_others()) {
    std::cout << "note        " << metrics.path()
              << ": no lock can be made beside it; only this run may write it" << std::endl;
  }
  if (options.output.empty() && options.checkpoint_dir.empty()) {
    std::cout << "note        what is trained is not kept: neither --output nor --checkpoint_dir "
                 "is given"
              << std::endl;
  }
  // A launcher may give a rank a terminal of its own, and write what it reads from it to a file.
  const bool terminal = job.group == nullptr && isatty(STDOUT_FILENO) == 1;
  Progress progress(options.steps, options.log_every, terminal);
  absl::Status measured;  // the first error of the metrics
  job.report = [&](const StepReport& report) {
    progress.Show(report);
    if (!measured.ok()) return absl::OkStatus();
    measured = metrics.Write(report);
    // Where metrics are all that it leaves, there is nothing to go on for.
    if (options.output.empty() && options.checkpoint_dir.empty()) return measured;
    if (!measured.ok()) {
      progress.Finish();
      std::cout << "metrics     end here: " << measured.message() << "; the run goes on"
                << std::endl;
    }
    return absl::OkStatus();
  };
  std::string saved;  // in words, of rank 0
  job.checkpoints.resume = point.path;
  job.checkpoints.resume_folder = point.folder;
  job.checkpoints.resumed = [&](int64_t step) { metrics.GoBackTo(step); };
  job.checkpoints.say = [&](const std::string& line) {
    progress.Finish();
    std::cout << line << std::endl;
  };
  RunEnd end;
  job.end = &end;
  if (!options.output.empty()) {
    job.finish = [&](ShardedOptimizer& optimizer, int rank) -> absl::Status {
      ZERO_ASSIGN_OR_RETURN(const WeightsSaved result, SaveModel(optimizer, options, job.model));
      if (rank == 0) saved = DescribeSaved(options, result);
      return absl::OkStatus();
    };
  }
  StopOnSignals();
  const absl::Status status = RunJob(job);
  progress.Finish();
  ZERO_RETURN_IF_ERROR(status);
  progress.Summary();
  if (end.signals != 0) {
    std::cout << DescribeStop(options, end) << std::endl;
    if (options.checkpoint_dir.empty() || end.step == 0) ending.signals = end.signals;
  }
  // Of a checkpoint that is not saved rank 0 tells.
  if (!writes) return absl::OkStatus();
  if (end.signals != 0) {
    ZERO_RETURN_IF_ERROR(LastCheckpoint(end));
    return measured;
  }
  if (end.first_step == options.steps) {
    std::cout << "the run was complete: all " << options.steps << " steps were done" << std::endl;
  }
  if (!saved.empty()) std::cout << saved << std::endl;
  ZERO_RETURN_IF_ERROR(LastCheckpoint(end));
  return measured;
}

absl::Status Prefixed(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

absl::StatusOr<llama::LlamaConfig> OpenModel(const Options& options) {
  absl::StatusOr<llama::LlamaConfig> model = llama::ReadConfig(options.model);
  if (!model.ok()) return Prefixed("--model", model.status());
  return model;
}

// What the run starts from: the weights in the folder of --model. Nothing where --model is a file,
// or a folder without weights: random ones.
absl::StatusOr<std::optional<SavedWeights>> OpenWeights(const Options& options,
                                                        const llama::LlamaConfig& model) {
  std::error_code error;
  if (!std::filesystem::is_directory(options.model, error)) return std::nullopt;
  const absl::StatusOr<bool> any = WeightFolder::In(options.model);
  if (!any.ok()) return Prefixed("--model", any.status());
  if (!*any) return std::nullopt;
  absl::StatusOr<SavedWeights> weights = SavedWeights::Open(options.model, model);
  if (!weights.ok()) return Prefixed("--model", weights.status());
  return *std::move(weights);
}

absl::StatusOr<llama::TokenDataset> OpenData(const char* flag, const std::string& path,
                                             const Options& options,
                                             const llama::LlamaConfig& model,
                                             llama::SampleOrder order) {
  llama::TokenDataset::Options settings;
  settings.sequence_length = options.sequence_length;
  settings.order = order;
  settings.seed = static_cast<uint64_t>(options.seed);
  settings.vocabulary = model.vocab_size;
  ZERO_ASSIGN_OR_RETURN(settings.format, llama::ParseTokenFormat(options.data_format));
  absl::StatusOr<llama::TokenDataset> data = llama::TokenDataset::Open(path, settings);
  if (!data.ok()) return Prefixed(flag, data.status());
  return data;
}

// What `ranks` ranks will take of this machine's memory, and a rank of what the flags allow to it
// and the others of its process, `sharing` in all; in the largest stage that runs.
absl::Status CheckMemory(const Options& options, const llama::LlamaConfig& model, int64_t ranks,
                         int64_t sharing) {
  std::vector<int64_t> stages = {options.stage};
  if (options.compare_stages) stages = {0, 1, 2, 3};
  const auto plan = [&](const OffloadOptions& places, int64_t stage) {
    Options other = options;
    other.stage = stage;
    other.offload = places;
    return PlanCost(other, model);
  };
  ZERO_RETURN_IF_ERROR(CheckLimits(
      options.offload, stages, sharing,
      [&](const OffloadOptions& places, int64_t stage) -> absl::StatusOr<PlannedMemory> {
        ZERO_ASSIGN_OR_RETURN(const Cost cost, plan(places, stage));
        return PlannedMemory{cost.memory, cost.offload};
      }));
  int64_t most = 0;
  for (const int64_t stage : stages) {
    ZERO_ASSIGN_OR_RETURN(const Cost cost, plan(options.offload, stage));
    most = std::max(most, options.device == "cuda" ? cost.host_bytes() : cost.total_bytes());
  }
  return support::CheckMemory(ranks, static_cast<double>(most), HostMemoryLimit());
}

// From files to the last line of output. `options` are finished. `launch`: of this rank, where
// ranks are processes.
absl::Status Run(const Options& options, const llama::LlamaConfig& model,
                 const std::optional<Launch>& launch, Ending& ending) {
  using llama::SampleOrder;
  ListenToSignals(/*speaks=*/!launch.has_value() || launch->rank == 0);
  ZERO_ASSIGN_OR_RETURN(const std::optional<SavedWeights> saved, OpenWeights(options, model));
  const SavedWeights* weights = saved.has_value() ? &*saved : nullptr;
  ZERO_ASSIGN_OR_RETURN(const llama::TokenDataset data,
                        OpenData("--data", options.data, options, model,
                                 options.shuffle ? SampleOrder::kShuffled : SampleOrder::kFile));
  std::optional<llama::TokenDataset> evaluation_data;
  if (options.evaluate_every > 0) {
    const bool own = !options.evaluate_data.empty();
    ZERO_ASSIGN_OR_RETURN(evaluation_data, OpenData(own ? "--evaluate_data" : "--data",
                                                    own ? options.evaluate_data : options.data,
                                                    options, model, SampleOrder::kFile));
  }
  ZERO_RETURN_IF_ERROR(LimitSimdTargets(options.simd));
  ZERO_RETURN_IF_ERROR(CheckMemory(options, model,
                                   launch.has_value() ? launch->local_size : options.ranks,
                                   launch.has_value() ? 1 : options.ranks));
  ZERO_RETURN_IF_ERROR(CheckNvmePath(options.offload));
  // --threads is for all ranks together.
  const int64_t processes = launch.has_value() ? options.ranks : 1;
  ThreadPool pool(static_cast<int>(std::max<int64_t>(options.threads / processes, 1)));
  Job job;
  job.options = options;
  job.model = model;
  job.weights = weights;
  job.data = &data;
  job.evaluation_data = evaluation_data.has_value() ? &*evaluation_data : nullptr;
  job.pool = &pool;
  job.cuda_device = CudaDeviceOf(options, launch);
  const DeviceChoice device{options.device, job.cuda_device};
  ZERO_ASSIGN_OR_RETURN(const std::string machine, DescribeDevice(device, options.threads));
  ResumePoint point;
  RunFolder checkpoints;
  if (!launch.has_value() || launch->rank == 0) {
    ZERO_ASSIGN_OR_RETURN(checkpoints,
                          RunFolder::Prepare("--checkpoint_dir", options.checkpoint_dir));
    RemoveOnSignals(checkpoints.traces());
    ZERO_ASSIGN_OR_RETURN(point, PrepareCheckpoints(options, model, data));
  }
  const auto print = [&] { PrintConfiguration(options, model, weights, data, point, machine); };
  if (!launch.has_value()) {
    if (!options.compare_stages) return Train(std::move(job), point, checkpoints, print, ending);
    print();
    StopOnSignals();
    ZERO_ASSIGN_OR_RETURN(ending.signals, CompareStages(job));
    return absl::OkStatus();
  }
  ending.meets = true;
  ZERO_ASSIGN_OR_RETURN(
      Processes joined,
      Processes::Join(*launch, ConfigurationOf(options, model, weights, data, job.evaluation_data),
                      device, absl::Seconds(options.deadline)));
  job.group = joined.group();
  return joined.End(Train(std::move(job), point, checkpoints, print, ending));
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::optional<Launch>> launch = ReadProcesses();
  if (!launch.ok()) return support::Fail(kProgram, launch.status(), support::kExitUsage);
  Options options;
  if (launch->has_value()) {
    options.ranks = (*launch)->size;
    // Rank 0 speaks for all.
    if ((*launch)->rank != 0) std::cout.setstate(std::ios::badbit);
  }
  // Before this process meets the others.
  const auto fail = [&](const absl::Status& status, int exit_status) {
    // What is wrong with the flags is so on every rank, and rank 0 says it; of one alone it learns.
    const bool speaks =
        !launch->has_value() || (*launch)->rank == 0 || exit_status != support::kExitUsage;
    if (speaks) (void)support::Fail(kProgram, status, exit_status);
    if (launch->has_value()) Decline(**launch, status);
    return exit_status;
  };
  support::FlagTable flags;
  AddFlags(flags, options);
  absl::Status usage = flags.Parse(arguments);
  if (usage.ok() && flags.help()) {
    std::cout << "usage: " << kProgram << " --model PATH --data FILE [flags]\n"
              << flags.Help() << '\n'
              << SignalHelp();
    return 0;
  }
  // A shell variable that is not set, say.
  for (const auto& [name, value] :
       {std::pair("config", &options.config), std::pair("resume", &options.resume),
        std::pair("checkpoint_dir", &options.checkpoint_dir), std::pair("output", &options.output),
        std::pair("metrics", &options.metrics),
        std::pair("nvme_path", &options.offload.nvme_path)}) {
    if (!usage.ok() || !flags.Given(name) || !value->empty()) continue;
    usage = absl::InvalidArgumentError(
        absl::StrCat("--", name, " is empty; it must name a file or folder"));
  }
  if (usage.ok() && options.optimizer == "lion" && !flags.Given("beta2")) options.beta2 = 0.99;
  if (usage.ok() && launch->has_value()) usage = CheckProcesses(options, **launch);
  if (usage.ok()) usage = CheckReduction(options, *launch);
  if (usage.ok()) usage = CheckDeviceFlags(options.device, options.cuda_device);
  if (usage.ok() && !options.config.empty() && !options.model.empty()) {
    const absl::StatusOr<llama::LlamaConfig> model = OpenModel(options);
    if (!model.ok()) return fail(model.status(), support::kExitFailure);
    const absl::Status read = ReadConfigFile(flags, *model, *launch, options);
    if (!read.ok()) {
      const bool speaks = !launch->has_value() || (*launch)->rank == 0;
      const int result = support::kExitFailure;
      if (speaks) (void)support::FailLines(kProgram, read, result);
      if (launch->has_value()) Decline(**launch, absl::InvalidArgumentError("--config is refused"));
      return result;
    }
  }
  if (usage.ok()) usage = CheckEffects(flags, options);
  if (usage.ok()) usage = FinishOptions(options);
  if (usage.ok()) usage = CheckOverwrites(options);
  if (!usage.ok()) return fail(usage, support::kExitUsage);

  const absl::StatusOr<llama::LlamaConfig> model = OpenModel(options);
  if (!model.ok()) return fail(model.status(), support::kExitFailure);
  usage = FinishOptions(options, *model);
  if (!usage.ok()) return fail(usage, support::kExitUsage);

  Ending ending;
  const absl::Status status = Run(options, *model, *launch, ending);
  if (status.ok() && ending.signals != 0) EndBySignal(StopSignalNumber(ending.signals));
  if (status.ok()) return 0;
  return ending.meets ? support::Fail(kProgram, status, support::kExitFailure)
                      : fail(status, support::kExitFailure);
}

}  // namespace
}  // namespace zero::train

int main(int count, char** values) {
  return zero::train::Main(std::vector<std::string>(values + 1, values + count));
}
