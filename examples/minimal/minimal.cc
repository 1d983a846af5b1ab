// Fits y = sin(3 x) with two layers, prediction = tanh(x W1) W2, on two ranks, which are threads
// here. Weights, gradients and optimizer states are sharded over the ranks (ZeRO stage 3).
#include <Eigen/Core>
#include <cstdio>

#include "collectives/local_group.h"
#include "device/host_device.h"
#include "device/status.h"
#include "zero/initializer.h"
#include "zero/sharded_optimizer.h"

using Eigen::MatrixXf;
constexpr int kRanks = 2, kSteps = 500, kSamples = 64, kHidden = 32;  // kSamples on each rank

struct Batch {  // one rank's samples, and what forward leaves for backward
  MatrixXf x, y, hidden, error;
  float loss = 0;
};

// The trainer's own computation. `w` and `dw`: a layer's weights and where its gradient goes.
void Forward(int layer, Batch& batch, const float* w) {
  if (layer == 0) {
    batch.hidden = (batch.x * MatrixXf::Map(w, 1, kHidden)).array().tanh();
  } else {
    batch.error = batch.hidden * MatrixXf::Map(w, kHidden, 1) - batch.y;
    batch.loss = batch.error.squaredNorm() / kSamples;
  }
}

void Backward(int layer, Batch& batch, const float* w, float* dw) {
  if (layer == 1) {
    MatrixXf::Map(dw, kHidden, 1) = 2.0f / kSamples * batch.hidden.transpose() * batch.error;
    const MatrixXf slope = batch.error * MatrixXf::Map(w, kHidden, 1).transpose();
    batch.hidden = slope.array() * (1 - batch.hidden.array().square());  // d loss / d (x W1)
  } else {
    MatrixXf::Map(dw, 1, kHidden) = 2.0f / kSamples * batch.x.transpose() * batch.hidden;
  }
}

// Enqueues a step: weights are there from Acquire to Release, gradients are due at Reduce.
absl::Status Step(zero::ShardedOptimizer& optimizer, const zero::Stream& stream, Batch& batch) {
  ZERO_RETURN_IF_ERROR(optimizer.BeginPass(zero::Pass::kTrainLast));
  for (int layer : {0, 1}) {
    ZERO_ASSIGN_OR_RETURN(const zero::Weights weights, optimizer.AcquireWeights(layer, stream));
    ZERO_RETURN_IF_ERROR(stream.Enqueue("forward", [layer, weights, &batch] {
      Forward(layer, batch, static_cast<const float*>(weights.data[0]));
      return absl::OkStatus();
    }));
    ZERO_RETURN_IF_ERROR(optimizer.ReleaseWeights(layer, stream));
  }
  for (int layer : {1, 0}) {
    ZERO_ASSIGN_OR_RETURN(const zero::Weights weights, optimizer.AcquireWeights(layer, stream));
    ZERO_ASSIGN_OR_RETURN(const zero::Gradients out, optimizer.AcquireGradients(layer, stream));
    ZERO_RETURN_IF_ERROR(stream.Enqueue("backward", [layer, weights, out, &batch] {
      Backward(layer, batch, static_cast<const float*>(weights.data[0]),
               static_cast<float*>(out.data[0]));
      return absl::OkStatus();
    }));
    ZERO_RETURN_IF_ERROR(optimizer.ReduceGradients(layer, stream));
    ZERO_RETURN_IF_ERROR(optimizer.ReleaseWeights(layer, stream));
  }
  return optimizer.Step().status();
}

absl::Status Train(zero::ProcessGroup* group) {  // on every rank
  Batch batch;
  batch.x = Eigen::VectorXf::LinSpaced(kRanks * kSamples, -1, 1)
                .segment(group->rank() * kSamples, kSamples);
  batch.y = (3 * batch.x).array().sin();
  // A unit is what is gathered and released together: a layer of one parameter here.
  const auto f32 = zero::DType::kF32;
  const zero::Parameter w1 = {"w1", {1, kHidden}, f32, /*group=*/0, /*trainable=*/true, {}};
  const zero::Parameter w2 = {"w2", {kHidden, 1}, f32, /*group=*/0, /*trainable=*/true, {}};
  const zero::Model model = {{{"layer1", {w1}}, {"layer2", {w2}}}};
  zero::Config config;
  config.stage = 3;
  config.learning_rate = 0.01;
  zero::HostDevice device;
  ZERO_ASSIGN_OR_RETURN(const auto optimizer,
                        zero::ShardedOptimizer::Create(config, model, &device, group));
  ZERO_RETURN_IF_ERROR(optimizer->Write(
      zero::State::kMaster, zero::NormalInitializer(1, [](const auto&) { return 1.0f; })));
  // Made after the optimizer, so that it ends before the weights that it reads go.
  ZERO_ASSIGN_OR_RETURN(const auto stream, device.CreateStream("compute"));
  for (int step = 1; step <= kSteps; ++step) {
    ZERO_RETURN_IF_ERROR(Step(*optimizer, *stream, batch));
    if (group->rank() != 0 || (step > 1 && step % 100 != 0)) continue;
    ZERO_RETURN_IF_ERROR(stream->Synchronize());  // the stream writes the loss
    std::printf("step %3d  loss %.6f\n", step, batch.loss);
  }
  return optimizer->Finish();
}

int main() {
  zero::LocalWorld world(kRanks);
  const absl::Status status = zero::RunRanks(world, Train);
  if (!status.ok()) std::fprintf(stderr, "zero-minimal: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
