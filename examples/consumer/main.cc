// Fits y = 3 a - 2 b + 1 on two ranks, which are threads here, with sharded optimizer states and
// gradients (stage 2). Exits with 0 if it learned the line.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "collectives/local_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "zero/sharded_optimizer.h"

namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 300;
constexpr int kSamples = 32;  // on each rank
constexpr double kTrueWeights[] = {3, -2, 1};

// One micro-batch of one rank: inputs [kSamples][2], targets, and what forward leaves for backward.
struct Batch {
  std::vector<float> inputs;
  std::vector<float> targets;
  std::vector<float> errors;
  double loss = 0;
};

Batch MakeBatch(int rank) {
  Batch batch;
  for (int i = 0; i < kSamples; ++i) {
    const int sample = rank * kSamples + i;
    const double a = std::sin(0.7 * sample);
    const double b = std::cos(1.9 * sample);
    batch.inputs.push_back(static_cast<float>(a));
    batch.inputs.push_back(static_cast<float>(b));
    batch.targets.push_back(
        static_cast<float>(kTrueWeights[0] * a + kTrueWeights[1] * b + kTrueWeights[2]));
  }
  batch.errors.resize(kSamples);
  return batch;
}

// errors = prediction - target; loss = mean of squares.
void Forward(const float* weight, const float* bias, Batch& batch) {
  batch.loss = 0;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    const float* x = &batch.inputs[2 * i];
    batch.errors[i] = weight[0] * x[0] + weight[1] * x[1] + bias[0] - batch.targets[i];
    batch.loss += static_cast<double>(batch.errors[i]) * batch.errors[i] / kSamples;
  }
}

void Backward(const Batch& batch, float* weight_gradient, float* bias_gradient) {
  double sums[3] = {};
  for (size_t i = 0; i < batch.errors.size(); ++i) {
    const double slope = 2.0 / kSamples * batch.errors[i];
    sums[0] += slope * batch.inputs[2 * i];
    sums[1] += slope * batch.inputs[2 * i + 1];
    sums[2] += slope;
  }
  weight_gradient[0] = static_cast<float>(sums[0]);
  weight_gradient[1] = static_cast<float>(sums[1]);
  bias_gradient[0] = static_cast<float>(sums[2]);
}

// One pass of forward and backward on `stream`, then the update.
absl::Status TrainStep(zero::ShardedOptimizer& optimizer, const zero::Stream& stream,
                       Batch& batch) {
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(zero::Pass::kTrainLast));

  ZERO_ASSIGN_OR_RETURN(const zero::Weights weights, optimizer.AcquireWeights(0, stream));
  const auto* weight = static_cast<const float*>(weights.data[0]);
  const auto* bias = static_cast<const float*>(weights.data[1]);
  ZERO_RETURN_IF_ERROR(stream.Enqueue("forward", [weight, bias, &batch] {
    Forward(weight, bias, batch);
    return absl::OkStatus();
  }));
  ZERO_RETURN_IF_ERROR(optimizer.ReleaseWeights(0, stream));

  // The backward of this model needs no weights, only what forward left.
  ZERO_ASSIGN_OR_RETURN(const zero::Gradients gradients, optimizer.AcquireGradients(0, stream));
  auto* weight_gradient = static_cast<float*>(gradients.data[0]);
  auto* bias_gradient = static_cast<float*>(gradients.data[1]);
  ZERO_RETURN_IF_ERROR(stream.Enqueue("backward", [weight_gradient, bias_gradient, &batch] {
    Backward(batch, weight_gradient, bias_gradient);
    return absl::OkStatus();
  }));
  ZERO_RETURN_IF_ERROR(optimizer.ReduceGradients(0, stream));

  return optimizer.Step().status();
}

// One unit with two parameters.
zero::Model LineModel() {
  zero::Parameter weight;
  weight.name = "weight";
  weight.shape = {2};
  weight.dtype = zero::DType::kF32;
  zero::Parameter bias = weight;
  bias.name = "bias";
  bias.shape = {1};
  zero::Unit unit;
  unit.name = "line";
  unit.parameters = {weight, bias};
  zero::Model model;
  model.units = {unit};
  return model;
}

absl::Status TrainRank(zero::ProcessGroup* group) {
  Batch batch = MakeBatch(group->rank());  // outlives the stream that works on it
  zero::HostDevice device;
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<zero::Stream> stream, device.CreateStream("compute"));

  zero::Config config;
  config.stage = 2;
  config.learning_rate = 0.05;
  ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<zero::ShardedOptimizer> optimizer,
                        zero::ShardedOptimizer::Create(config, LineModel(), &device, group));
  ZERO_RETURN_IF_ERROR(optimizer->Write(zero::State::kWeight,
                                        [](const zero::Parameter&, int64_t, absl::Span<float> out) {
                                          for (float& value : out) value = 0;
                                          return absl::OkStatus();
                                        }));

  for (int step = 1; step <= kSteps; ++step) {
    ZERO_RETURN_IF_ERROR(TrainStep(*optimizer, *stream, batch));
    if (group->rank() == 0 && step % 100 == 0) {
      ZERO_RETURN_IF_ERROR(stream->Synchronize());
      std::cout << "step " << step << "  loss of rank 0: " << batch.loss << "\n";
    }
  }

  std::vector<float> learned(3);
  ZERO_RETURN_IF_ERROR(
      optimizer->Gather(zero::State::kWeight, "weight", absl::MakeSpan(learned.data(), 2)));
  ZERO_RETURN_IF_ERROR(
      optimizer->Gather(zero::State::kWeight, "bias", absl::MakeSpan(learned.data() + 2, 1)));
  ZERO_RETURN_IF_ERROR(optimizer->Finish());
  ZERO_RETURN_IF_ERROR(stream->Synchronize());
  for (size_t i = 0; i < learned.size(); ++i) {
    if (std::abs(learned[i] - kTrueWeights[i]) > 0.02) {
      return absl::InternalError("the line was not learned");
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main() {
  zero::LocalWorld world(kRanks);
  const absl::Status status = zero::RunRanks(world, TrainRank);
  if (!status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  std::cout << "learned y = 3 a - 2 b + 1 on " << kRanks << " ranks\n";
  return 0;
}
