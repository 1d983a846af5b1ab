// Prints tokens per second and the processor time of each operation. Hidden: run with the tag
// [.bench].
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>
#include <mutex>

#include "device/host_device.h"
#include "tests/examples/product_library.h"
#include "tests/examples/small_model.h"

namespace zero::llama {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

// Of the calling thread: does not count what other programs take.
double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The time between the starts of two operations goes to the first.
class Profile {
 public:
  OperationHook Hook() {
    return [this](const std::string&, const char* name) {
      const double now = ThreadSeconds();
      if (!last_.empty()) {
        seconds_[last_] += now - since_;
        ++calls_[last_];
      }
      last_ = name;
      since_ = now;
      return absl::OkStatus();
    };
  }
  void Clear() {
    seconds_.clear();
    calls_.clear();
    last_.clear();
  }
  double Total() const {
    double all = 0;
    for (const auto& [name, seconds] : seconds_) all += seconds;
    return all;
  }
  void Print() const {
    const double all = Total();
    for (const auto& [name, seconds] : seconds_) {
      std::printf("  %-24s %8.3f ms %5.1f %%  %6.1f us/call\n", name.c_str(), seconds * 1e3,
                  100 * seconds / all, 1e6 * seconds / calls_.at(name));
    }
  }

 private:
  std::map<std::string, double> seconds_;
  std::map<std::string, int> calls_;
  std::string last_;
  double since_ = 0;
};

TEST_CASE("Speed: tokens per second of one rank on one thread", "[.bench][more][llama]") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF32);
  const auto library = GENERATE(ProductLibrary::kAuto, ProductLibrary::kEigen);
  const WithLibrary with(library);
  LlamaConfig config;
  config.vocab_size = 256;
  config.hidden_size = 256;
  config.intermediate_size = 688;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  config.tie_word_embeddings = true;
  REQUIRE_OK(CompleteConfig(config));
  LlamaModel::Options options;
  options.micro_batch = 2;
  options.sequence_length = 256;
  options.dtype = dtype;

  Profile profile;
  HostDevice device(HostDevice::Options{.hook = profile.Hook()});
  auto stream = *device.CreateStream("speed");
  PlainOptimizer optimizer(DescribeModel(config, dtype), 1);
  auto model = *LlamaModel::Create(config, options, &device);
  Batch batch;
  for (int64_t i = 0; i < model->tokens(); ++i) {
    batch.tokens.push_back(static_cast<int32_t>(i * 31 % 256));
    batch.targets.push_back(static_cast<int32_t>(i * 17 % 256));
  }
  LossSum loss;
  const auto run = [&](int passes) {
    for (int i = 0; i < passes; ++i) {
      optimizer.ForgetGradients();
      REQUIRE_OK(TrainPass(optimizer, *model, *stream, Pass::kTrain, batch, &loss));
      REQUIRE_OK(stream->Synchronize());
    }
  };
  run(3);
  profile.Clear();
  constexpr int kPasses = 40;
  const auto start = Clock::now();
  run(kPasses);
  const double seconds = Seconds(start);
  const double tokens = kPasses * static_cast<double>(model->tokens());
  std::printf(
      "%s%s, %lld parameters, %d x %d tokens a pass: %.0f tokens/s, %.2f ms a pass; %.0f tokens "
      "per second of processor time\n",
      Name(dtype), library == ProductLibrary::kEigen ? " (Eigen)" : "",
      static_cast<long long>(ParameterCount(config)), static_cast<int>(options.micro_batch),
      static_cast<int>(options.sequence_length), tokens / seconds, 1e3 * seconds / kPasses,
      tokens / profile.Total());
  profile.Print();
}

}  // namespace
}  // namespace zero::llama
