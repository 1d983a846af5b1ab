// What only the host has: SIMD targets, threads of a pool, and libraries for products.
#include <thread>

#include "examples/llama/ops.h"
#include "tests/examples/attention_run.h"
#include "tests/examples/product_library.h"
#include "tests/examples/reference_model.h"
#include "tests/examples/simd_targets.h"
#include "tests/examples/small_model.h"
#include "tests/examples/tensor.h"

namespace zero::llama {
namespace {

TEST_CASE("Attention: every SIMD target gives the result in double", "[examples][llama]") {
  const reference::AttentionShape s = {1, 70, 4, 2, 20};
  OnEachTarget([&] {
    AttentionRun run(s, DType::kF32);
    run.Run();
    Doubles dq(run.q_size), dk(run.kv_size), dv(run.kv_size);
    reference::AttentionBackward(s, run.qs, run.ks, run.vs, run.ds, dq, dk, dv);
    CheckNear("out", run.out.values(), reference::Attention(s, run.qs, run.ks, run.vs),
              DType::kF32);
    CheckNear("dq", run.dq.values(), dq, DType::kF32, 4e-6);
    CheckNear("dk", run.dk.values(), dk, DType::kF32, 4e-6);
    CheckNear("dv", run.dv.values(), dv, DType::kF32, 4e-6);
  });
}

TEST_CASE("Attention: the bits do not depend on the threads of the pool",
          "[examples][llama][thread]") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  AttentionRun alone({2, 100, 4, 2, 16}, dtype), shared({2, 100, 4, 2, 16}, dtype);
  ThreadPool pool(3);
  alone.Run();
  shared.Run(&pool);
  CHECK(alone.out == shared.out);
  CHECK(alone.lse == shared.lse);
  CHECK(alone.dq == shared.dq);
  CHECK(alone.dk == shared.dk);
  CHECK(alone.dv == shared.dv);
}

TEST_CASE("RmsNorm: the bits do not depend on the threads of the pool",
          "[examples][llama][thread]") {
  const size_t rows = 1000, width = 40;
  const RmsNormArguments arguments = {rows, width, DType::kF32, 1e-5f};
  const Tensor x(RandomValues(rows * width, 1), DType::kF32),
      w(RandomValues(width, 2), DType::kF32), dy(RandomValues(rows * width, 3), DType::kF32);
  const auto run = [&](ThreadPool* pool) {
    Runner runner(pool);
    Tensor y(rows * width, DType::kF32), r(rows, DType::kF32), dw(width, DType::kF32);
    runner.Run(
        RmsNormForward(runner.stream(), arguments, x.data(), w.data(), y.data(), r.floats()));
    runner.Run(RmsNormBackward(
        runner.stream(), arguments,
        {dy.floats(), x.data(), w.data(), r.floats(), nullptr, y.data(), dw.data(), false}));
    return std::pair(y, dw);
  };
  ThreadPool pool(3);
  CHECK(run(nullptr) == run(&pool));
}

TEST_CASE("MatMul: two threads give the same bits as one", "[examples][llama]") {
  const DType in = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const auto [m, n, k] =
      GENERATE(std::tuple(96, 80, 1000), std::tuple(16, 16, 4096), std::tuple(512, 256, 640));
  const bool transpose = GENERATE(false, true);
  Runner runner;
  const Tensor a(RandomValues(m * k, 1), in), b(RandomValues(k * n, 2), in);
  Tensor one(m * n, DType::kF32), two(one);
  MatMulArguments p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = a.data();
  p.b = b.data();
  p.in_type = in;
  p.transpose_a = transpose;
  p.c = one.data();
  runner.Run(MatMul(runner.stream(), p));
  p.c = two.data();
  p.threads = 2;
  runner.Run(MatMul(runner.stream(), p));
  CHECK(one == two);
}

TEST_CASE("LlamaModel: Eigen gives what oneDNN gives, to rounding", "[examples][llama]") {
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  SmallRun fast(SmallConfig(), SmallOptions(dtype)), plain(SmallConfig(), SmallOptions(dtype));
  const double loss = fast.Train(SmallBatch()).loss;
  const WithLibrary with(ProductLibrary::kEigen);
  const double plain_loss = plain.Train(SmallBatch()).loss;
  CHECK(loss == Approx(plain_loss).epsilon(dtype == DType::kF32 ? 1e-6 : 1e-3));
  CheckGradients(fast.optimizer.gradients(), plain.optimizer.gradients(), dtype, 4e-6, 4e-2);
}

TEST_CASE("LlamaModel: every SIMD target gives the gradients of the plain model",
          "[examples][llama]") {
  const LlamaConfig config = SmallConfig();
  const Batch batch = SmallBatch();
  OnEachTarget([&] {
    SmallRun run(config, SmallOptions(DType::kF32));
    run.Train(batch);
    reference::Model model(config, 2, 7);
    const auto weights = run.optimizer.weights();
    model.Loss(weights, batch.tokens, batch.targets);
    CheckGradients(run.optimizer.gradients(), model.Gradients(weights, batch.tokens, batch.targets),
                   DType::kF32);
  });
}

TEST_CASE("LlamaModel: ranks in threads of one process get the bits of a rank alone",
          "[examples][llama][thread]") {
  constexpr int kRanks = 3;
  const DType dtype = GENERATE(DType::kF32, DType::kBF16, DType::kF16);
  const WithLibrary with(kThreadSafeLibrary);
  SmallRun alone(SmallConfig(), SmallOptions(dtype));
  alone.Train(SmallBatch());
  std::vector<std::unique_ptr<SmallRun>> runs;
  for (int i = 0; i < kRanks; ++i) {
    runs.push_back(std::make_unique<SmallRun>(SmallConfig(), SmallOptions(dtype)));
  }
  std::vector<LossSum> losses(kRanks);
  std::vector<absl::Status> statuses(kRanks);
  std::vector<std::thread> threads;
  for (int i = 0; i < kRanks; ++i) {
    threads.emplace_back([&, i] {
      SmallRun& run = *runs[i];
      statuses[i] = TrainPass(run.optimizer, *run.model, run.runner.stream(), Pass::kTrain,
                              SmallBatch(), &losses[i]);
      if (statuses[i].ok()) statuses[i] = run.runner.stream().Synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kRanks; ++i) {
    CHECK_OK(statuses[i]);
    CHECK(runs[i]->optimizer.gradients() == alone.optimizer.gradients());
  }
}

}  // namespace
}  // namespace zero::llama
