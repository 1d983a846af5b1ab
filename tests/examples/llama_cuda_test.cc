// What only CUDA has: the host's results to compare with, orders of threads, and cuBLASLt.
#include <cmath>
#include <functional>

#include "device/host_device.h"
#include "examples/llama/cuda_products.h"
#include "examples/llama/ops.h"
#include "tests/emulation/grid.h"
#include "tests/examples/attention_run.h"
#include "tests/examples/small_model.h"
#include "tests/standin/cublaslt.h"
#include "tests/standin/cudart.h"

namespace zero::llama {
namespace {

DType AnyDType() { return GENERATE(DType::kF32, DType::kBF16, DType::kF16); }

// An operation on tensors that start `offset` elements into aligned memory, on both devices. The
// threads of kernels get their turn in other orders than in the suite that runs on any device:
// where a barrier is missing, results differ.
class OnBoth {
 public:
  OnBoth(DType dtype, size_t offset) : dtype_(dtype), offset_(offset) {
    host_stream_ = *host_.CreateStream("host");
    emulation::SetOrder(offset == 0 ? emulation::Order::kReverse : emulation::Order::kSeeded, 11);
  }
  ~OnBoth() { emulation::SetOrder(emulation::Order::kForward); }

  // The same values on both. Values are written into both by Run.
  size_t Add(const Doubles& values) { return Add(values, dtype_); }
  size_t AddFloats(const Doubles& values) { return Add(values, DType::kF32); }

  // Where tensor i is on the device that `stream` belongs to.
  char* at(const Stream& stream, size_t i) const {
    const Both& both = tensors_[i];
    char* first = stream.device().kind() == DeviceKind::kHost ? both.host.data() : both.cuda.data();
    return first + offset_ * SizeOf(both.dtype);
  }
  float* floats(const Stream& stream, size_t i) const {
    return reinterpret_cast<float*>(at(stream, i));
  }
  void Run(const std::function<absl::Status(const Stream&)>& operation) {
    runner_.Run(operation(runner_.stream()));
    REQUIRE_OK(operation(*host_stream_));
    REQUIRE_OK(host_stream_->Synchronize());
  }
  bool Equal(size_t i) const { return Cuda(i) == Host(i); }
  // What is around the values must be as it was.
  void Near(const std::string& what, size_t i, double fp32, double bf16) const {
    const Doubles cuda = Cuda(i), host = Host(i);
    const auto inner = [&](const Doubles& all) {
      return Doubles(all.begin() + offset_, all.end() - kBehind);
    };
    CheckNear(what, inner(cuda), inner(host), tensors_[i].dtype, fp32, bf16);
    CHECK(std::equal(cuda.begin(), cuda.begin() + offset_, host.begin()));
    CHECK(std::equal(cuda.end() - kBehind, cuda.end(), host.end() - kBehind));
  }

 private:
  struct Both {
    DType dtype;
    mutable std::vector<char> host;
    DeviceBytes cuda;
  };
  size_t Add(const Doubles& values, DType dtype) {
    Doubles padded(offset_, 77.0);
    padded.insert(padded.end(), values.begin(), values.end());
    padded.insert(padded.end(), kBehind, 77.0);
    const Tensor tensor(padded, dtype);
    DeviceBytes cuda(padded.size() * SizeOf(dtype));
    const Doubles rounded = tensor.values();
    for (size_t j = 0; j < rounded.size(); ++j) {
      WithElementType(dtype, [&](auto element) {
        using T = decltype(element);
        reinterpret_cast<T*>(cuda.mirror())[j] = FromFloat<T>(static_cast<float>(rounded[j]));
      });
    }
    cuda.Write();
    std::vector<char> host(cuda.mirror(), cuda.mirror() + cuda.bytes());
    tensors_.push_back({dtype, std::move(host), std::move(cuda)});
    return tensors_.size() - 1;
  }
  static constexpr size_t kBehind = 8;  // elements

  static Doubles Widen(const char* from, size_t bytes, DType dtype) {
    Doubles values(bytes / SizeOf(dtype));
    for (size_t j = 0; j < values.size(); ++j) {
      values[j] = WithElementType(dtype, [&](auto element) {
        return ToFloat(reinterpret_cast<const decltype(element)*>(from)[j]);
      });
    }
    return values;
  }
  Doubles Cuda(size_t i) const {
    const Both& both = tensors_[i];
    return Widen(both.cuda.Read(), both.cuda.bytes(), both.dtype);
  }
  Doubles Host(size_t i) const {
    const Both& both = tensors_[i];
    return Widen(both.host.data(), both.host.size(), both.dtype);
  }

  const DType dtype_;
  const size_t offset_;
  HostDevice host_;
  std::unique_ptr<Stream> host_stream_;
  Runner runner_;
  std::vector<Both> tensors_;
};

TEST_CASE("CUDA elements: sums are the host's bits and SwiGLU is the host's to rounding",
          "[examples][llama][cuda]") {
  const DType dtype = AnyDType();
  const size_t n = GENERATE(1, 3, 4, 7, 8, 9, 1023, 1024, 1025, 2047, 2049),
               offset = GENERATE(0, 1);
  CAPTURE(n, offset, Name(dtype));
  OnBoth both(dtype, offset);
  const size_t a = both.Add(RandomValues(n, 1, 8)), b = both.Add(RandomValues(n, 2)),
               d = both.Add(RandomValues(n, 3)), sum = both.Add(Doubles(n)),
               out = both.Add(Doubles(n)), d_a = both.Add(Doubles(n));
  both.Run([&](const Stream& s) {
    return AddResidual(s, dtype, n, both.at(s, a), both.at(s, b), both.at(s, sum));
  });
  CHECK(both.Equal(sum));
  both.Run([&](const Stream& s) {
    return SwiGluForward(s, dtype, n, both.at(s, a), both.at(s, b), both.at(s, out));
  });
  both.Near("out", out, 5e-7, 8e-3);
  both.Run([&](const Stream& s) {
    return SwiGluBackward(s, dtype, n, both.at(s, a), both.at(s, b), both.at(s, d), both.at(s, d_a),
                          both.at(s, d));
  });
  both.Near("d_gate", d_a, 5e-7, 8e-3);
  both.Near("d_up", d, 5e-7, 8e-3);
}

TEST_CASE("CUDA RmsNorm: is the host's to rounding at every width and alignment",
          "[examples][llama][cuda]") {
  const DType dtype = AnyDType();
  const size_t rows = GENERATE(1, 4, 5, 33), offset = GENERATE(0, 1);
  const size_t width = GENERATE(1, 8, 31, 32, 33, 128, 264);
  CAPTURE(rows, width, offset, Name(dtype));
  OnBoth both(dtype, offset);
  const size_t n = rows * width;
  const size_t x = both.Add(RandomValues(n, 1)), w = both.Add(RandomValues(width, 2)),
               dy = both.AddFloats(RandomValues(n, 3)), y = both.Add(Doubles(n)),
               r = both.AddFloats(Doubles(rows)), dx = both.Add(RandomValues(n, 4)),
               dw = both.Add(RandomValues(width, 5));
  const RmsNormArguments a = {int64_t(rows), int64_t(width), dtype, 1e-5f};
  both.Run([&](const Stream& s) {
    return RmsNormForward(s, a, both.at(s, x), both.at(s, w), both.at(s, y), both.floats(s, r));
  });
  both.Near("y", y, 1e-6, 8e-3);
  both.Near("r", r, 1e-6, 1e-6);
  both.Run([&](const Stream& s) {
    return RmsNormBackward(s, a,
                           {both.floats(s, dy), both.at(s, x), both.at(s, w), both.floats(s, r),
                            both.at(s, dx), both.at(s, dx), both.at(s, dw), true});
  });
  both.Near("dx", dx, 4e-6, 8e-3);
  both.Near("dw", dw, 4e-6, 8e-3);
}

TEST_CASE("CUDA Rotary: is the host's to rounding", "[examples][llama][cuda]") {
  const DType dtype = AnyDType();
  const int64_t head_dim = GENERATE(2, 6, 64), tokens = 14, heads = 3, sequence = 7;
  OnBoth both(dtype, GENERATE(0, 1));
  const size_t x = both.Add(RandomValues(tokens * heads * head_dim, 1)),
               c = both.AddFloats(RandomValues(sequence * head_dim / 2, 2)),
               s = both.AddFloats(RandomValues(sequence * head_dim / 2, 3));
  const bool backward = GENERATE(false, true);
  both.Run([&](const Stream& stream) {
    return Rotary(stream,
                  {tokens, sequence, heads, head_dim, dtype, both.floats(stream, c),
                   both.floats(stream, s), backward},
                  both.at(stream, x));
  });
  both.Near("x", x, 2e-7, 8e-3);
}

TEST_CASE("CUDA Embedding: rows and their sums are the host's bits", "[examples][llama][cuda]") {
  const DType dtype = AnyDType();
  const bool accumulate = GENERATE(false, true);
  const auto [tokens, width] = GENERATE(
      table<size_t, size_t>({{1, 1}, {255, 8}, {256, 24}, {257, 1}, {600, 16}, {5, 1030}}));
  const size_t offset = GENERATE(0, 1), vocab = 19;
  CAPTURE(tokens, width, offset, accumulate, Name(dtype));
  OnBoth both(dtype, offset);
  const size_t table = both.Add(RandomValues(vocab * width, 1)),
               out = both.Add(Doubles(tokens * width)),
               d_out = both.Add(RandomValues(tokens * width, 2, 1.0 / 3)),
               d_table = both.Add(RandomValues(vocab * width, 3));
  std::vector<int32_t> ids(tokens);
  std::mt19937 generator(4);
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % 17);
  const DeviceArray<int32_t> on_device(ids);
  const auto arguments = [&](const Stream& s) {
    const bool host = s.device().kind() == DeviceKind::kHost;
    return EmbeddingArguments{int64_t(tokens), int64_t(vocab), int64_t(width), dtype,
                              host ? ids.data() : on_device.data()};
  };
  both.Run([&](const Stream& s) {
    return EmbeddingForward(s, arguments(s), both.at(s, table), both.at(s, out));
  });
  CHECK(both.Equal(out));
  both.Run([&](const Stream& s) {
    return EmbeddingBackward(s, arguments(s), both.at(s, d_out), both.at(s, d_table), accumulate);
  });
  CHECK(both.Equal(d_table));
}

TEST_CASE("CUDA LoadIds: any number of ids are those of the call", "[examples][llama][cuda]") {
  const size_t n = GENERATE(0, 1, 959, 960, 961, 2500);
  std::vector<int32_t> ids(n);
  for (size_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>(i * i);
  const std::vector<int32_t> want = ids;
  Runner runner;
  const DeviceArray<int32_t> on_device(std::vector<int32_t>(n + 1, -7));
  const int64_t waits = runner.device().host_waits();
  REQUIRE_OK(LoadIds(runner.stream(), ids, on_device.data()));
  std::fill(ids.begin(), ids.end(), 0);
  CHECK(runner.device().host_waits() == waits);
  runner.Run(absl::OkStatus());
  std::vector<int32_t> got = on_device.values();
  CHECK(got.back() == -7);
  got.pop_back();
  CHECK(got == want);
}

TEST_CASE("CUDA CrossEntropy: is the host's to rounding and the sum of losses its bits",
          "[examples][llama][cuda]") {
  const DType dtype = AnyDType();
  const auto [vocab, rows] = GENERATE(
      table<size_t, size_t>({{1, 256}, {4, 257}, {7, 2}, {1024, 1}, {1025, 2}, {2052, 1}}));
  const size_t offset = GENERATE(0, 1);
  CAPTURE(vocab, rows, offset, Name(dtype));
  OnBoth both(dtype, offset);
  const size_t logits = both.AddFloats(RandomValues(rows * vocab, 1, 10)),
               losses = both.AddFloats(Doubles(rows)), lse = both.AddFloats(Doubles(rows)),
               d_logits = both.Add(Doubles(rows * vocab)), scale = both.AddFloats({64}),
               some = both.AddFloats(RandomValues(rows, 2, 3));
  std::vector<int32_t> targets(rows);
  for (size_t i = 0; i < rows; ++i) targets[i] = i % 5 == 3 ? -1 : static_cast<int32_t>(i % vocab);
  const DeviceArray<int32_t> on_device(targets);
  const DeviceLoss cuda_sum;
  LossSum host_sum;
  const auto on_host = [](const Stream& s) { return s.device().kind() == DeviceKind::kHost; };
  const auto arguments = [&](const Stream& s) {
    return CrossEntropyArguments{int64_t(rows), int64_t(vocab), both.floats(s, logits),
                                 on_host(s) ? targets.data() : on_device.data()};
  };
  both.Run([&](const Stream& s) {
    return CrossEntropyForward(s, arguments(s), both.floats(s, losses), both.floats(s, lse));
  });
  both.Near("losses", losses, 2e-6, 2e-6);
  both.Near("lse", lse, 2e-6, 2e-6);
  both.Run([&](const Stream& s) {
    return CrossEntropyBackward(s, arguments(s), both.floats(s, lse), both.floats(s, scale), 0.5f,
                                dtype, both.at(s, d_logits));
  });
  both.Near("d_logits", d_logits, 2e-6, 8e-3);
  both.Run([&](const Stream& s) {
    return SumLosses(s, rows, both.floats(s, some), arguments(s).targets,
                     on_host(s) ? &host_sum : cuda_sum.data());
  });
  CHECK(cuda_sum.get().loss == host_sum.loss);
  CHECK(cuda_sum.get().tokens == host_sum.tokens);
}

TEST_CASE("CUDA Attention: every width of head and length of sequence is the host's to rounding",
          "[examples][llama][cuda]") {
  const DType dtype = AnyDType();
  const reference::AttentionShape shape = GENERATE(
      reference::AttentionShape{1, 31, 2, 1, 64}, reference::AttentionShape{1, 32, 1, 1, 65},
      reference::AttentionShape{2, 33, 1, 1, 128}, reference::AttentionShape{1, 40, 2, 1, 129},
      reference::AttentionShape{1, 34, 1, 1, 256}, reference::AttentionShape{1, 65, 3, 1, 5});
  CAPTURE(shape.sequence, shape.width, Name(dtype));
  const size_t q_size = shape.batch * shape.sequence * shape.heads * shape.width,
               kv_size = shape.batch * shape.sequence * shape.kv_heads * shape.width;
  OnBoth both(dtype, GENERATE(0, 1));
  const size_t q = both.Add(RandomValues(q_size, 1, 2)), k = both.Add(RandomValues(kv_size, 2, 2)),
               v = both.Add(RandomValues(kv_size, 3)), d_out = both.Add(RandomValues(q_size, 4)),
               out = both.Add(Doubles(q_size)), dq = both.Add(Doubles(q_size)),
               dk = both.Add(Doubles(kv_size)), dv = both.Add(Doubles(kv_size)),
               lse = both.AddFloats(Doubles(shape.batch * shape.heads * shape.sequence));
  const auto arguments = [&](const Stream& s) {
    return AttentionArguments{shape.batch,    shape.sequence, shape.heads,
                              shape.kv_heads, shape.width,    dtype,
                              both.at(s, q),  both.at(s, k),  both.at(s, v)};
  };
  both.Run([&](const Stream& s) {
    return AttentionForward(s, arguments(s), both.at(s, out), both.floats(s, lse));
  });
  both.Near("out", out, 2e-6, 8e-3);
  both.Near("lse", lse, 2e-6, 2e-6);
  both.Run([&](const Stream& s) {
    return AttentionBackward(s, arguments(s),
                             {both.at(s, out), both.floats(s, lse), both.at(s, d_out),
                              both.at(s, dq), both.at(s, dk), both.at(s, dv)});
  });
  both.Near("dq", dq, 4e-6, 2e-2);
  both.Near("dk", dk, 4e-6, 2e-2);
  both.Near("dv", dv, 4e-6, 2e-2);
}

TEST_CASE("CUDA Attention: heads wider than the kernels are refused",
          "[examples][llama][cuda][errors]") {
  Runner runner;
  const absl::Status status =
      AttentionForward(runner.stream(), {1, 4, 1, 1, 257, DType::kF32}, nullptr, nullptr);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("head_dim is 257"));
}

TEST_CASE("CUDA model: no order of threads changes a bit", "[examples][llama][cuda]") {
  const DType dtype = AnyDType();
  SelectProductVariant("plain kernels");
  const auto run = [&](emulation::Order order) {
    emulation::SetOrder(order, 3);
    SmallRun small(SmallConfig(), SmallOptions(dtype));
    const LossSum loss = small.Train(SmallBatch());
    emulation::SetOrder(emulation::Order::kForward);
    return std::pair(loss.loss, small.optimizer.gradients());
  };
  const auto forward = run(emulation::Order::kForward);
  CHECK(run(emulation::Order::kReverse) == forward);
  CHECK(run(emulation::Order::kSeeded) == forward);
  SelectProductVariant(ProductVariants().front());
}

TEST_CASE("CUDA model: a pass allocates nothing and neither waits nor copies pageable memory",
          "[examples][llama][cuda]") {
  SmallRun run(SmallConfig(), SmallOptions(DType::kBF16));
  run.Train(SmallBatch());
  const DeviceLoss loss;
  Device& device = run.runner.device();
  const int64_t waits = device.host_waits(), allocations = device.allocations(),
                copies = standin::PageableCopies(),
                products = standin::CublasLtCalls("cublasLtMatmul");
  REQUIRE_OK(TrainPass(run.optimizer, *run.model, run.runner.stream(), Pass::kTrainLast,
                       SmallBatch(2), loss.data()));
  CHECK(device.host_waits() == waits);
  CHECK(device.allocations() == allocations);
  CHECK(standin::PageableCopies() == copies);
  REQUIRE_OK(run.runner.stream().Synchronize());
  CHECK(standin::CublasLtCalls("cublasLtMatmul") > products);
  // Every shape has its algorithm now.
  const int64_t chosen = standin::CublasLtCalls("cublasLtMatmulAlgoGetHeuristic");
  run.Train(SmallBatch(3));
  CHECK(standin::CublasLtCalls("cublasLtMatmulAlgoGetHeuristic") == chosen);
}

// A product of [3, 5] by [5, 4].
struct SmallProduct {
  explicit SmallProduct(Runner& runner)
      : a(RandomValues(15, 1), DType::kF32),
        b(RandomValues(20, 2), DType::kF32),
        c(12, DType::kF32) {
    arguments.m = 3;
    arguments.n = 4;
    arguments.k = 5;
    arguments.a = a.data();
    arguments.b = b.data();
    arguments.c = c.data();
    arguments.products = runner.products();
  }
  Tensor a, b, c;
  MatMulArguments arguments;
};

TEST_CASE("CudaProducts: what cuBLASLt refuses is an error with its name and the shape",
          "[examples][llama][cuda][errors]") {
  Runner runner;
  SmallProduct product(runner);
  standin::FailCublasLt("cublasLtMatmul", 1, CUBLAS_STATUS_EXECUTION_FAILED);
  const absl::Status status = MatMul(runner.stream(), product.arguments);
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("[3, 5] by [5, 4] in fp32: CUBLAS_STATUS_EXECUTION_FAILED"));
  runner.Run(MatMul(runner.stream(), product.arguments));
}

TEST_CASE("CudaProducts: wherever a call fails nothing leaks and the next product succeeds",
          "[examples][llama][cuda][errors][faults]") {
  Runner runner;
  SmallProduct product(runner);
  runner.Run(MatMul(runner.stream(), product.arguments));
  const Doubles want = product.c.values();
  int failures = 0;
  for (int64_t n = 1;; ++n) {
    CAPTURE(n);
    DeviceBytes workspace(4096);
    auto products =
        CudaProducts::Create(&runner.device(), workspace.data(), int64_t(workspace.bytes()));
    REQUIRE_OK(products.status());
    product.arguments.products = products->get();
    standin::FailCublasLt("", n, CUBLAS_STATUS_ALLOC_FAILED);
    const absl::Status status = MatMul(runner.stream(), product.arguments);
    standin::FailCublasLt("", 0, CUBLAS_STATUS_SUCCESS);
    if (status.ok()) {
      runner.Run(status);
      break;
    }
    ++failures;
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    product.c = Tensor(12, DType::kF32);
    product.arguments.c = product.c.data();
    runner.Run(MatMul(runner.stream(), product.arguments));
    CHECK(product.c.values() == want);
  }
  CHECK(failures >= 10);
}

TEST_CASE("CudaProducts: without an algorithm or the library a plain kernel does the product",
          "[examples][llama][cuda]") {
  Runner runner;
  SmallProduct product(runner);
  runner.Run(MatMul(runner.stream(), product.arguments));
  const Doubles want = product.c.values();
  const int64_t products = standin::CublasLtCalls("cublasLtMatmul");
  standin::SetCublasLtSupported(false);
  DeviceBytes workspace(4096);
  auto other = CudaProducts::Create(&runner.device(), workspace.data(), 4096);
  REQUIRE_OK(other.status());
  product.arguments.products = other->get();
  runner.Run(MatMul(runner.stream(), product.arguments));
  standin::SetCublasLtSupported(true);
  CheckNear("unsupported", product.c.values(), want, DType::kF32);
  product.arguments.products = nullptr;
  runner.Run(MatMul(runner.stream(), product.arguments));
  CheckNear("no library", product.c.values(), want, DType::kF32);
  CHECK(standin::CublasLtCalls("cublasLtMatmul") == products);
  CHECK_THAT(CudaProducts::Library(), ContainsSubstring("cuBLASLt 13."));
  standin::SetCublasLtLoadable(false);
  CHECK_THAT(CudaProducts::Library(), ContainsSubstring("plain kernels"));
  standin::SetCublasLtLoadable(true);
}

TEST_CASE("CudaProducts: a device that is the host is refused", "[examples][llama][cuda][errors]") {
  HostDevice host;
  CHECK(CudaProducts::Create(&host, nullptr, 0).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace zero::llama
