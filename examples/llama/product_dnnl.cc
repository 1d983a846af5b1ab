#include "examples/llama/product.h"

#ifdef ZERO_LLAMA_DNNL

#ifdef ZERO_LLAMA_OPENMP
#include <omp.h>
#endif

#include <dnnl.hpp>
#include <exception>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace zero::llama {
namespace {

enum class Addend : uint8_t { kNone, kOutput, kOther };

Addend AddendOf(const Product& p) {
  if (p.addend == nullptr) return Addend::kNone;
  return p.addend == p.c ? Addend::kOutput : Addend::kOther;
}

// Everything that a primitive is made for.
auto Key(const Product& p) {
  return std::tuple(p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride, p.transpose_a, p.transpose_b,
                    p.in_type, p.out_type, AddendOf(p), p.threads);
}

dnnl::memory::data_type TypeOf(DType type) {
  using Type = dnnl::memory::data_type;
  return type == DType::kF32 ? Type::f32 : type == DType::kBF16 ? Type::bf16 : Type::f16;
}

dnnl::memory::desc Matrix(int64_t rows, int64_t columns, DType type, bool transposed,
                          int64_t stride) {
  using dnnl::memory;
  return memory::desc({rows, columns}, TypeOf(type),
                      transposed ? memory::dims{1, stride} : memory::dims{stride, 1});
}

// A compiled product and the handles of its operands.
class Primitive {
 public:
  Primitive(const Product& p, const dnnl::engine& engine) {
    const auto a = Matrix(p.m, p.k, p.in_type, p.transpose_a, p.a_stride);
    const auto b = Matrix(p.k, p.n, p.in_type, p.transpose_b, p.b_stride);
    const auto c = Matrix(p.m, p.n, p.out_type, false, p.c_stride);
    const Addend addend = AddendOf(p);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops after;
    if (addend == Addend::kOutput) after.append_sum(1.0f);
    if (addend == Addend::kOther) after.append_binary(dnnl::algorithm::binary_add, c);
    attributes.set_post_ops(after);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine);
    matmul_ = dnnl::matmul(description);
    scratch_bytes_ = description.scratchpad_desc().get_size();
    a_ = dnnl::memory(a, engine, nullptr);
    b_ = dnnl::memory(b, engine, nullptr);
    c_ = dnnl::memory(c, engine, nullptr);
    scratch_ = dnnl::memory(description.scratchpad_desc(), engine, nullptr);
    arguments_ = {{DNNL_ARG_SRC, a_},
                  {DNNL_ARG_WEIGHTS, b_},
                  {DNNL_ARG_DST, c_},
                  {DNNL_ARG_SCRATCHPAD, scratch_}};
    if (addend == Addend::kOther) {
      addend_ = dnnl::memory(c, engine, nullptr);
      arguments_.insert({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, addend_});
    }
  }

  void Run(const Product& p, const dnnl::stream& stream, std::vector<char>& scratch) {
    constexpr size_t kAlignment = 64;
    if (scratch.size() < scratch_bytes_ + kAlignment) scratch.resize(scratch_bytes_ + kAlignment);
    const auto start = reinterpret_cast<uintptr_t>(scratch.data());
    const auto aligned = (start + kAlignment - 1) / kAlignment * kAlignment;
    a_.set_data_handle(const_cast<void*>(p.a));
    b_.set_data_handle(const_cast<void*>(p.b));
    c_.set_data_handle(p.c);
    if (addend_) addend_.set_data_handle(const_cast<void*>(p.addend));
    scratch_.set_data_handle(scratch.data() + (aligned - start));
    matmul_.execute(stream, arguments_);
  }

 private:
  dnnl::matmul matmul_;
  size_t scratch_bytes_ = 0;
  dnnl::memory a_, b_, c_, addend_, scratch_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// One per thread: primitives may not run twice at a time, and are dear to make.
class Cache {
 public:
  Cache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  bool Run(const Product& p) {
    auto [entry, is_new] = primitives_.try_emplace(Key(p));
    if (is_new) {
      try {
        entry->second.emplace(p, engine_);
      } catch (const dnnl::error&) {
        // Not on this CPU; the empty entry remembers.
      }
    }
    if (!entry->second) return false;
    entry->second->Run(p, stream_, scratch_);
    return true;
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<char> scratch_;
  std::map<decltype(Key(Product())), std::optional<Primitive>> primitives_;
};

void SetThreads([[maybe_unused]] int threads) {
#ifdef ZERO_LLAMA_OPENMP
  // Counts for the calling thread only.
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
#endif
}

}  // namespace

bool DnnlProduct(const Product& product) {
  // With nothing to sum it would leave C as it is.
  if (product.k == 0) return false;
  try {
    SetThreads(product.threads);
    thread_local Cache cache;
    return cache.Run(product);
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace zero::llama

#else

namespace zero::llama {

bool DnnlProduct(const Product&) { return false; }

}  // namespace zero::llama

#endif  // ZERO_LLAMA_DNNL
