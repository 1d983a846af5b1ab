// Random legal orders of verbs: units left out, resident, frozen, empty or of two dtypes, several
// micro-batches, evaluations in between, two streams, two optimizers on one device and group.
#include <cmath>
#include <mutex>
#include <random>

#include "device/seeded_scheduler.h"
#include "device/status.h"
#include "kernels/bfloat16_math.h"
#include "tests/catch.h"
#include "tests/device/seeds.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

// Random legal orders of verbs on two trainer streams, two optimizers in turn, against integer
// sums.
struct Fuzz {
  std::mt19937 random;
  explicit Fuzz(unsigned seed) : random(seed) {}
  int Up(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
};

Model RandomModel(Fuzz& fuzz, const std::string& prefix) {
  Model model;
  Parameter* frozen = nullptr;  // where nothing else is trainable
  bool trainable = false;
  const int units = 1 + fuzz.Up(7);
  model.units.reserve(units);
  for (int u = 0; u < units; ++u) {
    Unit unit;
    unit.name = prefix + std::to_string(u);
    unit.resident = fuzz.Up(5) == 0;
    const int parameters = fuzz.Up(4);
    for (int p = 0; p < parameters; ++p) {
      Parameter parameter;
      parameter.name = unit.name + "." + std::to_string(p);
      const int64_t sizes[] = {0, 1, 5, 64, 129, 700, 2000};
      parameter.shape = {sizes[fuzz.Up(7)]};
      parameter.dtype = fuzz.Up(2) == 0 ? DType::kF32 : DType::kBF16;
      parameter.trainable = fuzz.Up(5) != 0;
      unit.parameters.push_back(parameter);
    }
    model.units.push_back(unit);
    for (Parameter& parameter : model.units.back().parameters) {
      trainable = trainable || parameter.trainable;
      frozen = &parameter;
    }
  }
  if (!trainable && frozen != nullptr) frozen->trainable = true;
  return model;
}

float FuzzValue(int rank, int step, int micro, int unit, int p, int64_t i, int use) {
  return static_cast<float>((rank * 3 + step * 5 + micro * 7 + unit * 11 + p * 13 + i * 17 + use) %
                            9) -
         4;
}

absl::Status FuzzPass(Fuzz& fuzz, ShardedOptimizer& optimizer, const Stream* const* streams,
                      int rank, int ranks, int step, int micro, bool last,
                      std::map<std::string, std::vector<float>>& sums) {
  const Model& model = optimizer.model();
  const int units = static_cast<int>(model.units.size());
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(last ? Pass::kTrainLast : Pass::kTrain));
  for (int u = 0; u < units; ++u) {
    if (fuzz.Up(6) == 0) continue;
    const Stream& stream = *streams[fuzz.Up(2)];
    ZERO_RETURN_IF_ERROR(optimizer.AcquireWeights(u, stream).status());
    ZERO_RETURN_IF_ERROR(optimizer.ReleaseWeights(u, stream));
  }
  struct Open {
    int unit;
    const Stream* stream;
    std::vector<int> unwritten;
  };
  const auto acquire = [&](int u, int use, const std::vector<int>& unwritten,
                           const Stream& stream) -> absl::Status {
    ZERO_RETURN_IF_ERROR(optimizer.AcquireWeights(u, stream).status());
    ZERO_ASSIGN_OR_RETURN(const Gradients gradients, optimizer.AcquireGradients(u, stream));
    for (int p = 0; p < static_cast<int>(model.units[u].parameters.size()); ++p) {
      const Parameter& parameter = model.units[u].parameters[p];
      if (!parameter.trainable) continue;
      if (std::find(unwritten.begin(), unwritten.end(), p) != unwritten.end()) continue;
      const int64_t n = ElementCount(parameter);
      std::vector<float>& sum = sums[parameter.name];
      for (int r = 0; r < ranks; ++r) {
        for (int64_t i = 0; i < n; ++i) sum[i] += FuzzValue(r, step, micro, u, p, i, use);
      }
      void* const data = gradients.data[p];
      const bool add = gradients.accumulate, wide = parameter.dtype == DType::kF32;
      ZERO_RETURN_IF_ERROR(stream.Enqueue("write", [=] {
        for (int64_t i = 0; i < n; ++i) {
          const float v = FuzzValue(rank, step, micro, u, p, i, use);
          if (wide) {
            float* const x = static_cast<float*>(data) + i;
            *x = (add ? *x : 0) + v;
          } else {
            BFloat16* const x = static_cast<BFloat16*>(data) + i;
            *x = ToBFloat16((add ? ToFloat(*x) : 0) + v);
          }
        }
        return absl::OkStatus();
      }));
    }
    return optimizer.ReleaseWeights(u, stream);
  };
  std::vector<std::vector<int>> unwritten(units);
  std::vector<bool> skip(units), used(units, false);
  for (int u = 0; u < units; ++u) {
    skip[u] = fuzz.Up(5) == 0;
    for (int p = 0; p < static_cast<int>(model.units[u].parameters.size()); ++p) {
      if (fuzz.Up(6) == 0) unwritten[u].push_back(p);
    }
  }
  for (int u = 0; u < units; ++u) {
    if (!model.units[u].resident || skip[u] || fuzz.Up(2) == 0) continue;
    used[u] = true;
    ZERO_RETURN_IF_ERROR(acquire(u, 0, unwritten[u], *streams[fuzz.Up(2)]));
  }
  std::vector<Open> open;
  for (int u = units - 1; u >= 0; --u) {
    if (skip[u]) continue;
    const Stream& stream = *streams[fuzz.Up(2)];
    ZERO_RETURN_IF_ERROR(acquire(u, used[u] ? 1 : 0, unwritten[u], stream));
    open.push_back({u, &stream, unwritten[u]});
    // Keep at most one open: two slots.
    const size_t keep = fuzz.Up(3) == 0 && u > 0 && !skip[u - 1] ? 1 : 0;
    while (open.size() > keep) {
      ZERO_RETURN_IF_ERROR(
          optimizer.ReduceGradients(open[0].unit, *open[0].stream, open[0].unwritten));
      open.erase(open.begin());
    }
  }
  for (const Open& o : open) {
    ZERO_RETURN_IF_ERROR(optimizer.ReduceGradients(o.unit, *o.stream, o.unwritten));
  }
  return absl::OkStatus();
}

// In every stage, on threads of which one kind is slow, or in an order that the seed chooses.
void CheckFuzz(unsigned seed, bool seeded) {
  std::map<std::string, std::vector<float>> weights[4];
  for (int stage = 0; stage < 4; ++stage) {
    Fuzz setup(seed);
    const int ranks = 1 + setup.Up(3);
    const Model models[2] = {RandomModel(setup, "m"), RandomModel(setup, "n")};
    Config config;
    config.stage = stage;
    config.optimizer = setup.Up(2) ? OptimizerKind::kSgd : OptimizerKind::kAdamW;
    config.momentum = 0.5 * setup.Up(2);
    config.accumulation = setup.Up(2) ? DType::kF32 : DType::kBF16;
    const int64_t buckets[] = {1, 1000, 3000, int64_t{1} << 40};
    config.reduce_bucket_size = buckets[setup.Up(4)];
    const int prefetches[] = {0, 1, 3, 100};
    config.prefetch = prefetches[setup.Up(4)];
    config.poison_slots = setup.Up(2);
    const int slow = setup.Up(4);
    INFO("seed " << seed << ", stage " << stage << ", ranks " << ranks);
    LocalWorld world(ranks, absl::Seconds(10));
    const auto scheduler =
        seeded ? std::make_shared<SeededScheduler>(uint64_t{seed} * 4 + stage) : nullptr;
    const auto drive = [&](ProcessGroup* group) -> absl::Status {
      HostDevice::Options options;
      const char* const names[] = {"comm", "math", "a", "b"};
      options.scheduler = scheduler;
      if (!seeded)
        options.hook = [&, name = std::string(names[slow])](const std::string& stream,
                                                            const char*) {
          if (stream.substr(0, name.size()) == name)
            std::this_thread::sleep_for(std::chrono::microseconds(30));
          return absl::OkStatus();
        };
      HostDevice device(options);
      ZERO_ASSIGN_OR_RETURN(auto a, device.CreateStream("a"));
      ZERO_ASSIGN_OR_RETURN(auto b, device.CreateStream("b"));
      const Stream* const streams[] = {a.get(), b.get()};
      std::unique_ptr<ShardedOptimizer> optimizers[2];
      for (int o = 0; o < 2; ++o) {
        ZERO_ASSIGN_OR_RETURN(optimizers[o],
                              ShardedOptimizer::Create(config, models[o], &device, group));
        ZERO_RETURN_IF_ERROR(optimizers[o]->Write(State::kMaster, InitialValues()));
      }
      Fuzz fuzz(seed * 1000);
      for (int step = 0; step < 4; ++step) {
        const int passes = 1 + fuzz.Up(3);
        std::map<std::string, std::vector<float>> sums[2];
        for (int o = 0; o < 2; ++o) {
          for (const Unit& unit : models[o].units) {
            for (const Parameter& p : unit.parameters)
              sums[o][p.name].assign(ElementCount(p), 0.0f);
          }
        }
        for (int micro = 0; micro < passes; ++micro) {
          for (int o = 0; o < 2; ++o) {
            ZERO_RETURN_IF_ERROR(FuzzPass(fuzz, *optimizers[o], streams, group->rank(), ranks, step,
                                          micro, micro + 1 == passes, sums[o]));
            if (fuzz.Up(3) == 0) {
              ZERO_RETURN_IF_ERROR(optimizers[o]->BeginPass(Pass::kEvaluate));
              for (int u = 0; u < static_cast<int>(models[o].units.size()); ++u) {
                ZERO_RETURN_IF_ERROR(optimizers[o]->AcquireWeights(u, *a).status());
                ZERO_RETURN_IF_ERROR(optimizers[o]->ReleaseWeights(u, *a));
              }
            }
          }
        }
        const bool look = fuzz.Up(2) == 0;
        for (int o = 0; o < 2; ++o) {
          for (const Unit& unit : models[o].units) {
            for (const Parameter& p : unit.parameters) {
              if (!look || !p.trainable) continue;
              std::vector<float> sum(ElementCount(p));
              ZERO_RETURN_IF_ERROR(
                  optimizers[o]->Gather(State::kGradient, p.name, absl::MakeSpan(sum)));
              if (sum != sums[o][p.name]) return absl::InternalError("gradient of " + p.name);
            }
          }
          ZERO_RETURN_IF_ERROR(optimizers[o]->Step().status());
        }
      }
      for (int o = 0; o < 2; ++o) {
        for (const Unit& unit : models[o].units) {
          for (const Parameter& p : unit.parameters) {
            std::vector<float> values(ElementCount(p));
            ZERO_RETURN_IF_ERROR(
                optimizers[o]->Gather(State::kMaster, p.name, absl::MakeSpan(values)));
            if (group->rank() == 0) weights[stage][p.name] = values;
          }
        }
        const MemoryTable table = device.memory();
        for (int c = 0; c < kMemoryCategories; ++c) {
          if (table[c].current != optimizers[0]->plan().bytes[c] + optimizers[1]->plan().bytes[c]) {
            return absl::InternalError("memory");
          }
        }
      }
      return absl::OkStatus();
    };
    CHECK_OK(RunRanks(world, drive, scheduler.get()));
    CHECK(weights[stage] == weights[0]);
  }
}

}  // namespace

TEST_CASE("Fuzz: random legal orders of verbs give the sums, in every stage", "[zero][thread]") {
  for (unsigned seed = 1; seed <= 60; ++seed) CheckFuzz(seed, /*seeded=*/false);
}

TEST_CASE("Fuzz: random legal orders of verbs give the sums in orders that seeds choose",
          "[zero]") {
  for (const uint64_t seed : Seeds(1, 100)) {
    CAPTURE_SEED(seed);
    CheckFuzz(static_cast<unsigned>(seed), /*seeded=*/true);
  }
}

}  // namespace zero::test
