// The weights of a model of billions of bytes: needs 4 GB of memory and 3 GB of disk (TMPDIR).
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/bfloat16_math.h"
#include "tests/catch.h"
#include "tests/zero/saved_folders.h"
#include "zero/initializer.h"

namespace zero::test {
namespace {

constexpr uint64_t kSeed = 3;

// The shape of deepseek-coder-1.3b, with nothing to train.
Model LargeModel() {
  constexpr int64_t kHidden = 2048, kInner = 5504, kVocabulary = 32256;
  Model model;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    Parameter parameter;
    parameter.name = name;
    parameter.shape = std::move(shape);
    parameter.dtype = DType::kBF16;
    parameter.trainable = false;
    model.units.back().parameters.push_back(parameter);
  };
  model.units.push_back({"embedding", {}});
  add("model.embed_tokens.weight", {kVocabulary, kHidden});
  for (int layer = 0; layer < 24; ++layer) {
    const std::string name = absl::StrCat("model.layers.", layer, ".");
    model.units.push_back({name, {}});
    add(name + "input_layernorm.weight", {kHidden});
    for (const char* matrix : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(absl::StrCat(name, "self_attn.", matrix, ".weight"), {kHidden, kHidden});
    }
    add(name + "post_attention_layernorm.weight", {kHidden});
    add(name + "mlp.gate_proj.weight", {kInner, kHidden});
    add(name + "mlp.up_proj.weight", {kInner, kHidden});
    add(name + "mlp.down_proj.weight", {kHidden, kInner});
  }
  model.units.push_back({"head", {}});
  add("model.norm.weight", {kHidden});
  add("lm_head.weight", {kVocabulary, kHidden});
  return model;
}

float Deviation(const Parameter&) { return 0.02f; }

int64_t PeakMegabytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// Elements of a tensor that are not the initializer's.
int64_t Wrong(const WeightFolder& files, const Parameter& parameter) {
  const Source source = NormalInitializer(kSeed, Deviation);
  const int64_t count = ElementCount(parameter);
  std::vector<uint16_t> saved(1 << 20);
  std::vector<float> values(1 << 20);
  int64_t wrong = 0;
  for (int64_t first = 0; first < count; first += 1 << 20) {
    const auto n = static_cast<size_t>(std::min<int64_t>(count - first, 1 << 20));
    const absl::Span<char> bytes(reinterpret_cast<char*>(saved.data()), 2 * n);
    if (!files.ReadBytes(parameter.name, 2 * first, bytes).ok() ||
        !source(parameter, first, absl::MakeSpan(values.data(), n)).ok()) {
      return count;
    }
    for (size_t i = 0; i < n; ++i) wrong += saved[i] != ToBFloat16(values[i]).bits;
  }
  return wrong;
}

}  // namespace

TEST_CASE("SaveWeights: four ranks write 1.3 billion parameters without gathering them",
          "[.large]") {
  Config config;
  config.prefetch = 0;
  const TemporaryFolder folder;
  std::atomic<int64_t> sent{0};
  std::atomic<double> seconds{0};
  LocalWorld world(4, absl::Minutes(10));
  REQUIRE_OK(RunRanks(world, [&](ProcessGroup* group) -> absl::Status {
    auto rank = Rank::Create(config, LargeModel(), group);
    if (!rank.ok()) return rank.status();
    const absl::Status written =
        rank->optimizer->Write(State::kWeight, NormalInitializer(kSeed, Deviation));
    if (!written.ok()) return written;
    if (group->rank() == 0)
      std::cout << "peak memory before saving: " << PeakMegabytes() << " MB\n";
    const auto start = std::chrono::steady_clock::now();
    const auto saved = rank->optimizer->SaveWeights(folder.path());
    if (!saved.ok()) return saved.status();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    sent += group->traffic()[kSaving].bytes;
    return Require(saved->tensors == 219 && saved->data_bytes == 2'692'943'872 && saved->shared &&
                       saved->files == 1,
                   absl::StrCat(saved->tensors, " tensors, ", saved->data_bytes, " bytes"));
  }));
  std::cout << "peak memory after saving: " << PeakMegabytes() << " MB\nsaved in " << seconds
            << " s, " << 2692.943872 / seconds << " MB/s\nsent by all ranks: " << sent
            << " bytes\n";
  CHECK(sent < 100'000);
  const auto files = WeightFolder::Open(folder.path());
  REQUIRE_OK(files.status());
  CHECK(files->tensors().size() == 219);
  std::vector<Parameter> parameters;
  int64_t bytes = 0;
  for (const Unit& unit : LargeModel().units) {
    for (const Parameter& parameter : unit.parameters) {
      parameters.push_back(parameter);
      bytes += files->tensors().at(parameter.name).bytes();
    }
  }
  CHECK(bytes == 2'692'943'872);
  std::atomic<size_t> next{0};
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < parameters.size(); i = next++) {
        wrong += Wrong(*files, parameters[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  std::cout << bytes / 2 << " elements compared with the initializer, " << wrong << " differ\n";
}

}  // namespace zero::test
