// Attention forward and backward on random values.
#pragma once

#include "examples/llama/ops.h"
#include "tests/examples/reference_model.h"
#include "tests/examples/tensor.h"

namespace zero::llama {

struct AttentionRun {
  AttentionRun(const reference::AttentionShape& s, DType dtype, unsigned seed = 1)
      : q_size(s.batch * s.sequence * s.heads * s.width),
        kv_size(s.batch * s.sequence * s.kv_heads * s.width),
        qs(RandomValues(q_size, seed, 2)),
        ks(RandomValues(kv_size, seed + 1, 2)),
        vs(RandomValues(kv_size, seed + 2)),
        ds(RandomValues(q_size, seed + 3)),
        q(qs, dtype),
        k(ks, dtype),
        v(vs, dtype),
        d_out(ds, dtype),
        out(q_size, dtype),
        lse(s.batch * s.heads * s.sequence, DType::kF32),
        dq(q_size, dtype),
        dk(kv_size, dtype),
        dv(kv_size, dtype),
        arguments{s.batch, s.sequence, s.heads,  s.kv_heads, s.width,
                  dtype,   q.data(),   k.data(), v.data()} {}

  void Run(ThreadPool* pool = nullptr) {
    Runner runner(pool);
    runner.Run(AttentionForward(runner.stream(), arguments, out.data(), lse.floats()));
    runner.Run(AttentionBackward(
        runner.stream(), arguments,
        {out.data(), lse.floats(), d_out.data(), dq.data(), dk.data(), dv.data()}));
  }

  size_t q_size, kv_size;
  Doubles qs, ks, vs, ds;
  Tensor q, k, v, d_out, out, lse, dq, dk, dv;
  AttentionArguments arguments;
};

}  // namespace zero::llama
