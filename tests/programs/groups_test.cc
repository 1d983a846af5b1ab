// zero-train: which tensors decay, and which are frozen.
#include <cmath>
#include <map>

#include "examples/train/groups.h"
#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/programs/training_text.h"

namespace zero::programs {
namespace {

using Flags = std::vector<std::string>;
using Tensors = std::map<std::string, std::vector<float>>;

Flags Joined(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// What zero-train saves with `flags`.
Tensors Trained(const TrainingFolder& folder, const Flags& flags) {
  const std::string output = folder.File("out");
  const Outcome outcome = folder.Train(Joined(flags, {"--output", output}));
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  const auto file = SafetensorsFile::Open(output + "/model.safetensors");
  REQUIRE_OK(file.status());
  Tensors tensors;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    std::vector<float>& values = tensors[tensor.name];
    values.resize(static_cast<size_t>(elements));
    REQUIRE_OK(file->Read(tensor.name, 0, absl::MakeSpan(values)));
  }
  std::filesystem::remove_all(output);
  return tensors;
}

TEST_CASE("zero-train: frozen tensors are saved as they were", "[programs]") {
  const std::string stage = GENERATE("0", "1", "2", "3"), dtype = GENERATE("fp32", "bf16", "fp16");
  CAPTURE(stage, dtype);
  const bool tied = stage == "1";
  const TrainingFolder folder(tied);
  const Flags flags = {
      "--ranks=3",        "--stage",        stage, "--dtype", dtype, "--accumulation=2",
      "--weight_decay=1", "--loss_scale=64"};
  const Tensors initial = Trained(folder, Joined(flags, {"--learning_rate=0"}));
  const Tensors trained = Trained(
      folder, Joined(flags, {"--freeze", "model.embed_tokens.weight,*.layers.1.*,*norm.weight"}));
  CHECK(trained.size() == (tied ? 20 : 21));
  for (const auto& [name, values] : initial) {
    CAPTURE(name);
    REQUIRE(trained.count(name) == 1);
    const bool frozen = name.find("embed") != std::string::npos ||
                        name.find("layers.1.") != std::string::npos ||
                        name.find("norm.weight") != std::string::npos;
    CHECK((trained.at(name) == values) == frozen);
  }
}

// How far decay at `rate` x decay of 0.001 alone has moved `decayed` from `undecayed`, as a part of
// the values before.
double PartOf(const std::vector<float>& initial, const std::vector<float>& decayed,
              const std::vector<float>& undecayed) {
  double moved = 0, whole = 0;
  for (size_t i = 0; i < initial.size(); ++i) {
    moved += std::fabs(undecayed[i] - decayed[i]);
    whole += std::fabs(initial[i]);
  }
  return moved / whole;
}

TEST_CASE("zero-train: matrices decay once, a tied one too, and norms do not", "[programs]") {
  const TrainingFolder folder(true);
  const std::string stage = GENERATE("0", "3");
  const Flags flags = {"--dtype=fp32", "--steps=1", "--ranks=2", "--stage", stage};
  const Tensors initial = Trained(folder, Joined(flags, {"--learning_rate=0"}));
  const Tensors plain = Trained(folder, flags);
  const Tensors decayed = Trained(folder, Joined(flags, {"--weight_decay=0.1"}));
  const Tensors named =
      Trained(folder, Joined(flags, {"--weight_decay=0.1", "--no_decay=*.o_proj.*,model.embed*"}));
  CHECK(initial.size() == 20);
  for (const auto& [name, values] : initial) {
    CAPTURE(name);
    const bool norm = name.find("norm") != std::string::npos;
    const bool excepted =
        norm || name.find("o_proj") != std::string::npos || name == "model.embed_tokens.weight";
    const double part = PartOf(values, decayed.at(name), plain.at(name));
    CHECK(part == (norm ? Approx(0) : Approx(1e-2 * 0.1).epsilon(1e-3)));
    CHECK((named.at(name) == plain.at(name)) == excepted);
  }
}

TEST_CASE("zero-train: the tensors that decay and those that do not are printed", "[programs]") {
  const TrainingFolder folder(true);
  const auto printed = [&](const Flags& flags) {
    const Outcome outcome = folder.Train(Joined({"--steps=1"}, flags));
    INFO(outcome.err);
    CHECK(outcome.status == 0);
    return outcome.out;
  };
  CHECK_THAT(
      printed({"--weight_decay=0.1"}),
      ContainsSubstring("decay       15 tensors, 14,976 elements: model.embed_tokens.weight, "
                        "*.q_proj.weight, *.k_proj.weight, *.v_proj.weight, *.o_proj.weight, "
                        "*.gate_proj.weight, *.up_proj.weight, *.down_proj.weight\n"
                        "no decay    5 tensors, 120 elements: *.input_layernorm.weight, "
                        "*.post_attention_layernorm.weight, model.norm.weight\nmachine "));
  // What is printed is what the flags take.
  CHECK_THAT(printed({"--freeze", "model.embed_tokens.weight,*.q_proj.weight,*.k_proj.weight"}),
             ContainsSubstring("frozen      5 tensors, ") &&
                 ContainsSubstring(": model.embed_tokens.weight, *.q_proj.weight, "
                                   "*.k_proj.weight\n"));
  CHECK_THAT(printed({"--weight_decay=0.1", "--freeze", "*.layers.1.*,*embed*", "--no_decay",
                      "*down_proj*,*up_proj*"}),
             ContainsSubstring("decay       5 tensors, 2,496 elements: "
                               "model.layers.0.self_attn.q_proj.weight, ") &&
                 ContainsSubstring("no decay    5 tensors, 1,992 elements: "
                                   "model.layers.0.input_layernorm.weight, ") &&
                 ContainsSubstring("frozen      10 tensors, "));
  CHECK_THAT(printed({}), ContainsSubstring("decay       0 tensors, 0 elements\n"
                                            "no decay    20 tensors, 15,096 elements: "));
}

TEST_CASE("zero-train: a tied head is frozen and kept from decay under either name", "[programs]") {
  const TrainingFolder folder(true);
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight"}) {
    CHECK_THAT(
        folder.Train({"--steps=1", "--freeze", name}).out,
        ContainsSubstring("\nfrozen      1 tensor, 6,144 elements: model.embed_tokens.weight\n"));
    CHECK_THAT(
        folder.Train({"--steps=1", "--weight_decay=1", "--no_decay", name}).out,
        ContainsSubstring("\nno decay    6 tensors, 6,264 elements: model.embed_tokens.weight"));
  }
}

TEST_CASE("zero-train: a pattern that matches nothing or leaves nothing is refused",
          "[programs][errors]") {
  const TrainingFolder folder;
  const auto refused = [&](const Flags& flags, const std::string& text) {
    folder.CheckRefused(flags, 2, {"zero-train: " + text});
  };
  refused({"--freeze=*norm*,model.norm.wieght"},
          "--freeze: no parameter matches 'model.norm.wieght'; the nearest name is "
          "'model.norm.weight'");
  refused({"--freeze=embed_tokens"},
          "--freeze: no parameter matches 'embed_tokens'; "
          "'*embed_tokens*' matches model.embed_tokens.weight");
  refused({"--no_decay=q_proj"},
          "--no_decay: no parameter matches 'q_proj'; '*q_proj*' matches "
          "model.layers.0.self_attn.q_proj.weight and 1 more");
  refused({"--no_decay=bias"}, "--no_decay: no parameter matches 'bias'");
  refused({"--freeze=*"}, "--freeze: nothing to train");
}

}  // namespace
}  // namespace zero::programs
