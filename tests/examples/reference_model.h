// A LLaMA model in double, written from the papers as plainly as possible: the whole score matrix,
// no tiles, nothing shared with the code under test but the list of parameters.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "examples/llama/config.h"
#include "tests/examples/tensor.h"

namespace zero::llama::reference {

// y [rows, out] = x [rows, in] w' with w [out, in].
inline Doubles Linear(const Doubles& x, const Doubles& w, size_t rows, size_t out, size_t in) {
  Doubles y(rows * out);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) y[r * out + o] += x[r * in + i] * w[o * in + i];
    }
  }
  return y;
}

// Adds to dx and dw.
inline void LinearBackward(const Doubles& x, const Doubles& w, const Doubles& dy, size_t rows,
                           size_t out, size_t in, Doubles& dx, Doubles& dw) {
  for (size_t r = 0; r < rows; ++r) {
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) {
        dx[r * in + i] += dy[r * out + o] * w[o * in + i];
        dw[o * in + i] += dy[r * out + o] * x[r * in + i];
      }
    }
  }
}

inline double Rms(const double* x, size_t width, double epsilon) {
  double sum = 0;
  for (size_t i = 0; i < width; ++i) sum += x[i] * x[i];
  return std::sqrt(sum / static_cast<double>(width) + epsilon);
}

inline Doubles Norm(const Doubles& x, const Doubles& w, double epsilon) {
  const size_t width = w.size();
  Doubles y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / Rms(&x[i / width * width], width, epsilon) * w[i % width];
  }
  return y;
}

inline void NormBackward(const Doubles& x, const Doubles& w, const Doubles& dy, double epsilon,
                         Doubles& dx, Doubles& dw) {
  const size_t width = w.size();
  for (size_t row = 0; row < x.size() / width; ++row) {
    const double* xs = &x[row * width];
    const double rms = Rms(xs, width, epsilon);
    for (size_t i = 0; i < width; ++i) {
      const double d = dy[row * width + i];
      dw[i] += d * xs[i] / rms;
      // d(x_i / rms) / d x_j = [i == j] / rms - x_i x_j / (width rms^3).
      for (size_t j = 0; j < width; ++j) {
        const double slope =
            (i == j ? 1 / rms : 0) - xs[i] * xs[j] / (static_cast<double>(width) * rms * rms * rms);
        dx[row * width + j] += d * w[i] * slope;
      }
    }
  }
}

// The frequency of pair `i`, from the formulas of the papers.
inline double Frequency(const LlamaConfig& c, int64_t i) {
  const double base = 1 / std::pow(c.rope_theta, 2.0 * i / c.head_dim);
  if (c.rope.kind == RopeKind::kLinear) return base / c.rope.factor;
  if (c.rope.kind == RopeKind::kDefault) return base;
  const double turns = c.rope.original_max_position_embeddings * base / (2 * std::numbers::pi);
  if (turns > c.rope.high_freq_factor) return base;
  if (turns < c.rope.low_freq_factor) return base / c.rope.factor;
  const double s =
      (turns - c.rope.low_freq_factor) / (c.rope.high_freq_factor - c.rope.low_freq_factor);
  return base * ((1 - s) / c.rope.factor + s);
}

// Turns all heads of x [tokens, heads * head_dim]; sign -1 turns back.
inline Doubles Rotate(const LlamaConfig& c, const Doubles& x, int64_t heads, int64_t sequence,
                      double sign = 1) {
  Doubles y = x;
  const int64_t half = c.head_dim / 2;
  for (size_t head = 0; head < x.size() / c.head_dim; ++head) {
    const double position = static_cast<int64_t>(head / heads) % sequence;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = sign * position * Frequency(c, i);
      const size_t a = head * c.head_dim + i, b = a + half;
      y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
      y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
  }
  return y;
}

struct AttentionShape {
  int64_t batch, sequence, heads, kv_heads, width;
  size_t q(int64_t b, int64_t t, int64_t h) const {
    return ((b * sequence + t) * heads + h) * width;
  }
  size_t kv(int64_t b, int64_t t, int64_t h) const {
    return ((b * sequence + t) * kv_heads + h / (heads / kv_heads)) * width;
  }
};

// softmax of row t of one head.
inline Doubles Probabilities(const AttentionShape& s, const Doubles& q, const Doubles& k, int64_t b,
                             int64_t h, int64_t t) {
  Doubles p(t + 1);
  double sum = 0, top = -INFINITY;
  for (int64_t u = 0; u <= t; ++u) {
    for (int64_t i = 0; i < s.width; ++i) p[u] += q[s.q(b, t, h) + i] * k[s.kv(b, u, h) + i];
    p[u] /= std::sqrt(static_cast<double>(s.width));
    top = std::max(top, p[u]);
  }
  for (double& x : p) sum += x = std::exp(x - top);
  for (double& x : p) x /= sum;
  return p;
}

inline Doubles Attention(const AttentionShape& s, const Doubles& q, const Doubles& k,
                         const Doubles& v) {
  Doubles out(q.size());
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.sequence; ++t) {
        const Doubles p = Probabilities(s, q, k, b, h, t);
        for (int64_t u = 0; u <= t; ++u) {
          for (int64_t i = 0; i < s.width; ++i)
            out[s.q(b, t, h) + i] += p[u] * v[s.kv(b, u, h) + i];
        }
      }
    }
  }
  return out;
}

inline void AttentionBackward(const AttentionShape& s, const Doubles& q, const Doubles& k,
                              const Doubles& v, const Doubles& d_out, Doubles& dq, Doubles& dk,
                              Doubles& dv) {
  const double scale = 1 / std::sqrt(static_cast<double>(s.width));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.sequence; ++t) {
        const Doubles p = Probabilities(s, q, k, b, h, t);
        Doubles dp(t + 1);
        double mean = 0;
        for (int64_t u = 0; u <= t; ++u) {
          for (int64_t i = 0; i < s.width; ++i) {
            dp[u] += d_out[s.q(b, t, h) + i] * v[s.kv(b, u, h) + i];
            dv[s.kv(b, u, h) + i] += p[u] * d_out[s.q(b, t, h) + i];
          }
          mean += p[u] * dp[u];
        }
        for (int64_t u = 0; u <= t; ++u) {
          const double ds = p[u] * (dp[u] - mean) * scale;
          for (int64_t i = 0; i < s.width; ++i) {
            dq[s.q(b, t, h) + i] += ds * k[s.kv(b, u, h) + i];
            dk[s.kv(b, u, h) + i] += ds * q[s.q(b, t, h) + i];
          }
        }
      }
    }
  }
}

inline double Silu(double x) { return x / (1 + std::exp(-x)); }
inline double SiluSlope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

// Sum over rows with a target of log sum exp - logit, and its gradient.
inline double CrossEntropy(const Doubles& logits, const std::vector<int32_t>& targets, size_t vocab,
                           Doubles* d_logits = nullptr) {
  double loss = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const double* x = &logits[row * vocab];
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(x[i]);
    loss += std::log(sum) - x[targets[row]];
    if (d_logits == nullptr) continue;
    for (size_t i = 0; i < vocab; ++i) {
      (*d_logits)[row * vocab + i] =
          std::exp(x[i]) / sum - (static_cast<int32_t>(i) == targets[row] ? 1 : 0);
    }
  }
  return loss;
}

using Parameters = std::map<std::string, Doubles>;

struct Layer {
  Doubles x, n1, q, k, v, a, x1, n2, g, u, h;
};

class Model {
 public:
  Model(const LlamaConfig& config, int64_t batch, int64_t sequence)
      : c_(config),
        rows_(batch * sequence),
        s_{batch, sequence, c_.num_attention_heads, c_.num_key_value_heads, c_.head_dim} {}

  double Loss(const Parameters& p, const std::vector<int32_t>& tokens,
              const std::vector<int32_t>& targets) {
    const size_t hidden = c_.hidden_size;
    Doubles x(rows_ * hidden);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = p.at("model.embed_tokens.weight")[tokens[i / hidden] * hidden + i % hidden];
    }
    layers_.assign(c_.num_hidden_layers, Layer());
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) x = Forward(p, i, x);
    last_ = x;
    norm_ = Norm(x, p.at("model.norm.weight"), c_.rms_norm_eps);
    logits_ = Linear(norm_, p.at(HeadName()), rows_, c_.vocab_size, hidden);
    return CrossEntropy(logits_, targets, c_.vocab_size);
  }

  const Doubles& logits() const { return logits_; }

  // Of the last Loss.
  Parameters Gradients(const Parameters& p, const std::vector<int32_t>& tokens,
                       const std::vector<int32_t>& targets) {
    Parameters g;
    for (const auto& [name, values] : p) g[name].assign(values.size(), 0.0);
    const size_t hidden = c_.hidden_size;
    Doubles d_logits(logits_.size()), d_norm(norm_.size()), d(last_.size());
    CrossEntropy(logits_, targets, c_.vocab_size, &d_logits);
    LinearBackward(norm_, p.at(HeadName()), d_logits, rows_, c_.vocab_size, hidden, d_norm,
                   g[HeadName()]);
    NormBackward(last_, p.at("model.norm.weight"), d_norm, c_.rms_norm_eps, d,
                 g["model.norm.weight"]);
    for (int64_t i = c_.num_hidden_layers - 1; i >= 0; --i) d = Backward(p, i, d, g);
    for (size_t i = 0; i < d.size(); ++i) {
      g["model.embed_tokens.weight"][tokens[i / hidden] * hidden + i % hidden] += d[i];
    }
    return g;
  }

 private:
  std::string HeadName() const {
    return c_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  }
  static std::string Prefix(int64_t layer) { return "model.layers." + std::to_string(layer) + "."; }

  Doubles Forward(const Parameters& p, int64_t layer, const Doubles& x) {
    const auto w = [&](const char* name) -> const Doubles& { return p.at(Prefix(layer) + name); };
    const size_t hidden = c_.hidden_size, inner = c_.intermediate_size;
    Layer& l = layers_[layer];
    l.x = x;
    l.n1 = Norm(x, w("input_layernorm.weight"), c_.rms_norm_eps);
    l.q = Rotate(c_, Linear(l.n1, w("self_attn.q_proj.weight"), rows_, c_.query_size(), hidden),
                 s_.heads, s_.sequence);
    l.k = Rotate(c_, Linear(l.n1, w("self_attn.k_proj.weight"), rows_, c_.key_value_size(), hidden),
                 s_.kv_heads, s_.sequence);
    l.v = Linear(l.n1, w("self_attn.v_proj.weight"), rows_, c_.key_value_size(), hidden);
    l.a = Attention(s_, l.q, l.k, l.v);
    l.x1 = Linear(l.a, w("self_attn.o_proj.weight"), rows_, hidden, c_.query_size());
    for (size_t i = 0; i < x.size(); ++i) l.x1[i] += x[i];
    l.n2 = Norm(l.x1, w("post_attention_layernorm.weight"), c_.rms_norm_eps);
    l.g = Linear(l.n2, w("mlp.gate_proj.weight"), rows_, inner, hidden);
    l.u = Linear(l.n2, w("mlp.up_proj.weight"), rows_, inner, hidden);
    l.h.resize(l.g.size());
    for (size_t i = 0; i < l.h.size(); ++i) l.h[i] = Silu(l.g[i]) * l.u[i];
    Doubles y = Linear(l.h, w("mlp.down_proj.weight"), rows_, hidden, inner);
    for (size_t i = 0; i < y.size(); ++i) y[i] += l.x1[i];
    return y;
  }

  Doubles Backward(const Parameters& p, int64_t layer, const Doubles& dy, Parameters& g) {
    const auto w = [&](const char* name) -> const Doubles& { return p.at(Prefix(layer) + name); };
    const auto dw = [&](const char* name) -> Doubles& { return g.at(Prefix(layer) + name); };
    const size_t hidden = c_.hidden_size, inner = c_.intermediate_size;
    const Layer& l = layers_[layer];
    Doubles dh(l.h.size()), dg(l.h.size()), du(l.h.size()), dn2(l.n2.size()), dx1 = dy;
    LinearBackward(l.h, w("mlp.down_proj.weight"), dy, rows_, hidden, inner, dh,
                   dw("mlp.down_proj.weight"));
    for (size_t i = 0; i < dh.size(); ++i) {
      dg[i] = dh[i] * l.u[i] * SiluSlope(l.g[i]);
      du[i] = dh[i] * Silu(l.g[i]);
    }
    LinearBackward(l.n2, w("mlp.gate_proj.weight"), dg, rows_, inner, hidden, dn2,
                   dw("mlp.gate_proj.weight"));
    LinearBackward(l.n2, w("mlp.up_proj.weight"), du, rows_, inner, hidden, dn2,
                   dw("mlp.up_proj.weight"));
    NormBackward(l.x1, w("post_attention_layernorm.weight"), dn2, c_.rms_norm_eps, dx1,
                 dw("post_attention_layernorm.weight"));

    Doubles da(l.a.size()), dq(l.q.size()), dk(l.k.size()), dv(l.v.size()), dn1(l.n1.size());
    LinearBackward(l.a, w("self_attn.o_proj.weight"), dx1, rows_, hidden, c_.query_size(), da,
                   dw("self_attn.o_proj.weight"));
    AttentionBackward(s_, l.q, l.k, l.v, da, dq, dk, dv);
    dq = Rotate(c_, dq, s_.heads, s_.sequence, -1);
    dk = Rotate(c_, dk, s_.kv_heads, s_.sequence, -1);
    LinearBackward(l.n1, w("self_attn.q_proj.weight"), dq, rows_, c_.query_size(), hidden, dn1,
                   dw("self_attn.q_proj.weight"));
    LinearBackward(l.n1, w("self_attn.k_proj.weight"), dk, rows_, c_.key_value_size(), hidden, dn1,
                   dw("self_attn.k_proj.weight"));
    LinearBackward(l.n1, w("self_attn.v_proj.weight"), dv, rows_, c_.key_value_size(), hidden, dn1,
                   dw("self_attn.v_proj.weight"));
    Doubles dx = dx1;
    NormBackward(l.x, w("input_layernorm.weight"), dn1, c_.rms_norm_eps, dx,
                 dw("input_layernorm.weight"));
    return dx;
  }

  const LlamaConfig c_;
  const size_t rows_;
  const AttentionShape s_;
  std::vector<Layer> layers_;
  Doubles last_, norm_, logits_;
};

}  // namespace zero::llama::reference
