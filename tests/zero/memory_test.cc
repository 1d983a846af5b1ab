// Bytes: the plan against the formulas, the accounts against the plan, and too little room.
#include <algorithm>
#include <cstdlib>

#include "kernels/bfloat16_math.h"
#include "tests/catch.h"
#include "tests/zero/rank_fixture.h"
#include "tests/zero/toy_trainer.h"

namespace zero::test {
namespace {

Model TransformerLike(int layers, DType dtype) {
  Model model = SimpleModel(layers, 0, dtype);
  for (Unit& unit : model.units) {
    unit.parameters[0].shape = {100, 37};
    Parameter frozen = unit.parameters[0];
    frozen.name += ".frozen";
    frozen.shape = {50, 11};
    frozen.trainable = false;
    unit.parameters.push_back(frozen);
  }
  return model;
}

}  // namespace

TEST_CASE("MakePlan: bytes are those of the formulas, for every stage and dtype",
          "[zero][memory]") {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const DType stored : {DType::kF32, DType::kBF16}) {
        for (int stage = 0; stage < 4; ++stage) {
          for (const int64_t bucket : {int64_t{1}, int64_t{1} << 40}) {
            Config config;
            config.stage = stage;
            config.accumulation = stored;
            config.prefetch = 2;
            config.reduce_bucket_size = bucket;
            const auto plan = MakePlan(config, TransformerLike(6, dtype), ranks);
            REQUIRE_OK(plan.status());
            // From the formulas, with N x 128 elements of padding.
            const auto padded = [&](int64_t n) {
              const int64_t step = ranks * 128;
              return (n + step - 1) / step * step;
            };
            const int64_t unit_trainable = padded(3700);
            const int64_t unit_frozen = padded(550);
            const int64_t t = 6 * unit_trainable;
            const int64_t f = 6 * unit_frozen;
            const int64_t w = dtype == DType::kF32 ? 4 : 2;
            const int64_t s = dtype == DType::kF32 || stored == DType::kF32 ? 4 : 2;
            const int64_t o = dtype == DType::kF32 ? 8 : 12;
            INFO("ranks " << ranks << ", " << Name(dtype) << ", " << Name(stored) << ", stage "
                          << stage);
            CHECK(plan->layout.trainable_elements() == t);
            CHECK(plan->layout.frozen_elements() == f);
            CHECK(plan->bytes_of(MemoryCategory::kWeights) ==
                  w * (t + f) / (stage >= 3 ? ranks : 1));
            CHECK(plan->bytes_of(MemoryCategory::kGradients) == s * t / (stage >= 2 ? ranks : 1));
            CHECK(plan->bytes_of(MemoryCategory::kOptimizerStates) ==
                  o * t / (stage >= 1 ? ranks : 1));
            CHECK(plan->bytes_of(MemoryCategory::kGatheredWeights) ==
                  (stage == 3 ? 3 * w * (unit_trainable + unit_frozen) : 0));
            CHECK(plan->bytes_of(MemoryCategory::kGradientSlots) ==
                  (stage >= 2 || s != w ? 2 * w * unit_trainable : 0));
            CHECK(plan->bytes_of(MemoryCategory::kReceive) ==
                  (ranks > 1
                       ? 2 * w * std::min(std::max(bucket, int64_t{ranks} * 128), unit_trainable)
                       : 0));
            // The wire, in bytes x N / (N - 1).
            for (const int64_t a : {1, 3}) {
              const WireBytes wire = plan->step_wire(a);
              const int64_t x = a == 1 ? w : s;
              const auto sent = [&](const char* name) {
                const auto found = wire.find(name);
                return found == wire.end() ? 0 : found->second * ranks;
              };
              CHECK(sent(kReduceGradients) == (stage >= 2 ? a * w : x) * t * (ranks - 1));
              CHECK(sent(kGatherGradients) == (stage == 0 ? s * t * (ranks - 1) : 0));
              // Forward gathers 6 units; backward finds 3 of them live; so does the next forward.
              const int64_t gathered = (6 + 3 + (a - 1) * (3 + 3)) * (t + f) / 6;
              CHECK(sent(kGatherWeights) == (stage == 0   ? 0
                                             : stage == 3 ? w * gathered
                                                          : w * t) *
                                                (ranks - 1));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("MakePlan: with 16-bit gradients the bytes are the ZeRO paper's", "[zero][memory]") {
  // 7.5 billion parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB (Rajbhandari et al., figure 1).
  Model model = SimpleModel(75, 100'000'000, DType::kBF16);
  const double wanted[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage < 4; ++stage) {
    Config config;
    config.stage = stage;
    config.accumulation = DType::kBF16;
    const auto plan = MakePlan(config, model, 64);
    REQUIRE_OK(plan.status());
    const int64_t bytes = plan->bytes_of(MemoryCategory::kWeights) +
                          plan->bytes_of(MemoryCategory::kGradients) +
                          plan->bytes_of(MemoryCategory::kOptimizerStates);
    CHECK(static_cast<double>(bytes) / 1e9 == Approx(wanted[stage]).margin(0.05));
  }
}

TEST_CASE("Create: at any capacity it succeeds within it, or fails and leaves nothing",
          "[zero][memory][errors]") {
  for (int stage = 0; stage < 4; ++stage) {
    LocalWorld world(1);
    Config config;
    config.stage = stage;
    config.groups = {{}, {}};
    const Model model = MakeModel("mixed", DType::kBF16);
    const auto plan = MakePlan(config, model, 1);
    REQUIRE_OK(plan.status());
    const int64_t total = plan->device_bytes();
    std::vector<int64_t> capacities = {0, 1, total - 1, total};
    for (int64_t part = 1; part < 40; ++part) capacities.push_back(total * part / 40);
    for (const int64_t capacity : capacities) {
      HostDevice::Options options;
      options.capacity = capacity;
      HostDevice device(options);
      auto optimizer = ShardedOptimizer::Create(config, model, &device, world.group(0));
      INFO("stage " << stage << ", capacity " << capacity << " of " << total);
      CHECK(optimizer.ok() == (capacity >= total));
      if (optimizer.ok()) continue;
      CHECK(absl::IsResourceExhausted(optimizer.status()));
      CHECK_THAT(std::string(optimizer.status().message()),
                 ContainsSubstring(std::to_string(capacity)));
      for (const MemoryUse& use : device.memory()) CHECK(use.current == 0);
    }
  }
}

TEST_CASE("Adopted memory: weights and gradients stay where the trainer put them",
          "[zero][memory]") {
  for (int stage = 0; stage < 3; ++stage) {
    INFO("stage " << stage);
    Config config;
    config.stage = stage;
    config.accumulation = DType::kBF16;
    const Model model = MakeModel("odd", DType::kBF16);
    const auto plan = MakePlan(config, model, 1);
    REQUIRE_OK(plan.status());
    const auto allocate = [](int64_t bytes) {
      auto* const data = static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      std::fill(data, data + bytes, '\x3f');  // 0x3f3f: 0.746 in bf16, also where gaps are
      return std::unique_ptr<char, decltype(&std::free)>(data, &std::free);
    };
    const auto weights = allocate(plan->weights.bytes);
    const auto gradients = allocate(plan->gradients.bytes);
    Adopted adopted;
    adopted.weights = weights.get();
    if (stage < 2) adopted.gradients = gradients.get();
    for (int u = 0; u < static_cast<int>(model.units.size()); ++u) {
      for (int p = 0; p < static_cast<int>(model.units[u].parameters.size()); ++p) {
        adopted.weight_addresses.push_back(weights.get() + plan->weight_offset(u, p));
      }
    }
    LocalWorld world(1);
    auto rank = Rank::Create(config, model, world.group(0), {}, adopted);
    REQUIRE_OK(rank.status());
    const float value = FloatOf(0x3f3f0000u);
    std::vector<float> read(1009);
    REQUIRE_OK(rank->optimizer->Gather(State::kWeight, "c.0", absl::MakeSpan(read)));
    CHECK(read == std::vector<float>(1009, value));
    REQUIRE_OK(rank->optimizer->Gather(State::kMaster, "c.0", absl::MakeSpan(read)));
    CHECK(read == std::vector<float>(1009, value));
    // The gaps behind 1009 elements were zeroed.
    const char* const end = weights.get() + plan->weight_offset(2, 0) + 1009 * 2;
    CHECK(std::all_of(end, end + 15 * 2, [](char c) { return c == 0; }));

    REQUIRE_OK(rank->optimizer->BeginPass(Pass::kTrainLast));
    auto acquired = rank->optimizer->AcquireWeights(2, *rank->stream);
    REQUIRE_OK(acquired.status());
    CHECK(acquired->data[0] == weights.get() + plan->weight_offset(2, 0));
    REQUIRE_OK(rank->optimizer->ReleaseWeights(2, *rank->stream));
    if (stage < 2) {
      auto written = rank->optimizer->AcquireGradients(2, *rank->stream);
      REQUIRE_OK(written.status());
      CHECK(written->data[0] == gradients.get() + plan->gradient_offset(2, 0));
      REQUIRE_OK(rank->optimizer->ReduceGradients(2, *rank->stream, {0}));
    }
    REQUIRE_OK(rank->optimizer->Finish());
    // Accounted, but not as ours.
    const MemoryTable table = rank->device->memory();
    CHECK(table[static_cast<int>(MemoryCategory::kWeights)].current == plan->weights.bytes);
  }
}

TEST_CASE("Adopted memory: another place, stage or alignment is refused by name",
          "[zero][memory][errors]") {
  Config config;
  config.stage = 1;
  const Model model = SimpleModel(2, 100);
  const auto plan = MakePlan(config, model, 1);
  REQUIRE_OK(plan.status());
  alignas(64) static char memory[4096];
  LocalWorld world(1);
  HostDevice device;
  const auto refused = [&](Adopted adopted, const std::string& text) {
    const auto created = ShardedOptimizer::Create(config, model, &device, world.group(0), adopted);
    INFO(created.status().ToString());
    CHECK(absl::IsInvalidArgument(created.status()));
    CHECK_THAT(std::string(created.status().message()), ContainsSubstring(text));
  };
  Adopted adopted;
  adopted.weights = memory;
  adopted.weight_addresses = {memory, memory + 400};
  refused(adopted, "'u1.w' lies at byte 400, the plan puts it at byte 512");
  adopted.weight_addresses = {memory};
  refused(adopted, "no address for 'u1.w'");
  adopted.weight_addresses.clear();
  adopted.weights = memory + 4;
  refused(adopted, "64-byte aligned");
  adopted.weights = memory;
  config.stage = 3;
  refused(adopted, "stage 3");
  config.stage = 2;
  adopted.weights = nullptr;
  adopted.gradients = memory;
  refused(adopted, "stage 2");
}

// Remembers which memory of the host was asked for.
class AskedDevice : public HostDevice {
 public:
  int64_t pinned = 0, pageable = 0;

 protected:
  absl::StatusOr<void*> AllocateHostBytes(int64_t bytes, HostMemory memory) override {
    (memory == HostMemory::kPageable ? pageable : pinned) += bytes;
    return HostDevice::AllocateHostBytes(bytes, memory);
  }
};

TEST_CASE("Offload: pin_memory is for all that is offloaded and nothing else", "[zero][memory]") {
  const bool pin = GENERATE(true, false);
  const Place parameters = GENERATE(Place::kHost, Place::kDevice);
  CAPTURE(pin, Name(parameters));
  LocalWorld world(1);
  AskedDevice device;
  Config config;
  config.stage = 3;
  config.offload.optimizer = Place::kHost;
  config.offload.parameters = parameters;
  config.offload.pin_memory = pin;
  const auto optimizer =
      ShardedOptimizer::Create(config, SimpleModel(2, 10), &device, world.group(0));
  REQUIRE_OK(optimizer.status());
  int64_t offloaded = 0;
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    if (IsOffloaded(category)) offloaded += (*optimizer)->plan().bytes_of(category);
  }
  CHECK(offloaded > 0);
  CHECK(device.pageable == (pin ? 0 : offloaded));
  CHECK(device.pinned >= (pin ? offloaded : 1));
}

TEST_CASE("accounting_json: holds memory, wire and host waits", "[zero][memory]") {
  LocalWorld world(1);
  auto rank = Rank::Create(Config(), SimpleModel(2, 10), world.group(0));
  REQUIRE_OK(rank.status());
  REQUIRE_OK(rank->Pass(Pass::kTrainLast, [](int, int64_t) { return 1.0f; }));
  REQUIRE_OK(rank->optimizer->Step().status());
  REQUIRE_OK(rank->optimizer->Finish());
  const std::string json = rank->optimizer->accounting_json();
  for (const char* text : {"\"memory\": {\"weights\": {\"current\": 1024, \"peak\": 1024}",
                           "\"wire\": {", "\"gather_weights\": {\"calls\": ", "\"host_waits\": "}) {
    CHECK_THAT(json, ContainsSubstring(text));
  }
}

}  // namespace zero::test
