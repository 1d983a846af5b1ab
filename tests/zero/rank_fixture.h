// One optimizer on one rank, or several driven in turn by hand.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "collectives/local_group.h"
#include "device/host_device.h"
#include "tests/catch.h"
#include "zero/sharded_optimizer.h"

namespace zero::test {

// A model of `units` units named "u0", "u1", ... with one parameter "u0.w" of `elements` each.
inline Model SimpleModel(int units, int64_t elements, DType dtype = DType::kF32) {
  Model model;
  for (int u = 0; u < units; ++u) {
    Unit unit;
    unit.name = "u" + std::to_string(u);
    Parameter parameter;
    parameter.name = unit.name + ".w";
    parameter.shape = {elements};
    parameter.dtype = dtype;
    unit.parameters = {parameter};
    model.units.push_back(unit);
  }
  return model;
}

// What one rank needs; destroyed in the right order.
struct Rank {
  ProcessGroup* group = nullptr;
  std::unique_ptr<HostDevice> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<ShardedOptimizer> optimizer;

  static absl::StatusOr<Rank> Create(const Config& config, const Model& model, ProcessGroup* group,
                                     HostDevice::Options options = {}, Adopted adopted = {}) {
    Rank rank;
    rank.group = group;
    rank.device = std::make_unique<HostDevice>(options);
    absl::StatusOr<std::unique_ptr<Stream>> stream = rank.device->CreateStream("trainer");
    if (!stream.ok()) return stream.status();
    rank.stream = std::move(*stream);
    absl::StatusOr<std::unique_ptr<ShardedOptimizer>> optimizer =
        ShardedOptimizer::Create(config, model, rank.device.get(), group, adopted);
    if (!optimizer.ok()) return optimizer.status();
    rank.optimizer = std::move(*optimizer);
    return rank;
  }

  int units() const { return static_cast<int>(optimizer->model().units.size()); }

  // One pass in which every fp32 gradient element of parameter 0 is value(unit, element).
  absl::Status Pass(zero::Pass pass, const std::function<float(int, int64_t)>& value) {
    absl::Status status = optimizer->BeginPass(pass);
    for (int u = 0; u < units() && status.ok(); ++u) {
      absl::StatusOr<Weights> weights = optimizer->AcquireWeights(u, *stream);
      if (!weights.ok()) return weights.status();
      status = optimizer->ReleaseWeights(u, *stream);
    }
    for (int u = units() - 1; u >= 0 && status.ok(); --u) {
      absl::StatusOr<Gradients> gradients = optimizer->AcquireGradients(u, *stream);
      if (!gradients.ok()) return gradients.status();
      auto* const data = static_cast<float*>(gradients->data[0]);
      const bool add = gradients->accumulate;
      const int64_t n = ElementCount(optimizer->model().units[u].parameters[0]);
      status = stream->Enqueue("backward", [=] {
        for (int64_t i = 0; i < n; ++i) data[i] = (add ? data[i] : 0) + value(u, i);
        return absl::OkStatus();
      });
      if (status.ok()) status = optimizer->ReduceGradients(u, *stream);
    }
    return status;
  }
};

}  // namespace zero::test
