#include "tests/catch.h"
#include "tests/programs/subprocess.h"

namespace zero::programs {
namespace {

const std::string kDemo = ZERO_SOURCE_DIR "/examples/models/demo";

TEST_CASE("zero-plan: prints memory and traffic of every stage", "[tools]") {
  const Outcome outcome = RunProgram("zero-plan", {"--model", kDemo, "--ranks", "4"});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  // 3,033,344 parameters without padding at 4 ranks: w = 2, s = 4, o = 12 bytes each.
  CHECK_THAT(outcome.out, ContainsSubstring("3,033,344 parameters in bf16 on 4 ranks"));
  CHECK_THAT(outcome.out, ContainsSubstring("optimizer_states         0.036       0.009       "
                                            "0.009       0.009"));
  CHECK_THAT(outcome.out, ContainsSubstring("gather_weights           0.000       0.005       "
                                            "0.005       0.008"));
}

TEST_CASE("zero-plan: masters and optimizers change the bytes of states", "[tools]") {
  // o = 12 bytes with fp32 masters and two moments; 3,033,344 parameters on one rank.
  const auto states = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", kDemo, "--ranks=1"});
    const Outcome outcome = RunProgram("zero-plan", flags);
    INFO(outcome.err);
    CHECK(outcome.status == 0);
    const size_t at = outcome.out.find("optimizer_states");
    REQUIRE(at != std::string::npos);
    return outcome.out.substr(at + 16, 14);
  };
  CHECK(states({}) == "         0.036");
  CHECK(states({"--master=split"}) == "         0.030");
  CHECK(states({"--master=none", "--optimizer=lion"}) == "         0.012");
  CHECK(states({"--dtype=fp16", "--optimizer=sgd"}) == "         0.012");
}

TEST_CASE("zero-plan: a configuration file does what the same flags do", "[tools]") {
  const auto plan = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--model", kDemo, "--ranks=2"});
    const Outcome outcome = RunProgram("zero-plan", flags);
    INFO(outcome.err);
    CHECK(outcome.status == 0);
    return outcome.out;
  };
  const std::string file = kDemo + "/deepspeed.json";
  const std::string both = plan({"--config", file, "--accumulation=1"});
  CHECK(both == plan({"--dtype=fp16", "--micro_batch=2"}));
  CHECK(both != plan({"--dtype=fp16"}));
  const Outcome refused = RunProgram(
      "zero-plan", {"--model", kDemo, "--config", file, "--dtype=bf16", "--micro_batch=3"});
  CHECK(refused.status == 1);
  CHECK(LinesOf(refused.err) == 2);
  CHECK_THAT(refused.err, ContainsSubstring("but --micro_batch is 3"));
}

TEST_CASE("zero-plan: wrong input is one line that names the flag or key", "[tools]") {
  const auto refused = [](const std::vector<std::string>& arguments, int status,
                          const std::string& text) {
    const Outcome outcome = RunProgram("zero-plan", arguments);
    INFO(outcome.err);
    CHECK(outcome.status == status);
    CHECK(LinesOf(outcome.err) == 1);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, ContainsSubstring(text));
  };
  refused({}, 2, "--model is missing");
  refused({"--model", kDemo, "--ranks", "0"}, 2, "--ranks");
  refused({"--model", kDemo, "--rank", "4"}, 2, "--ranks");
  refused({"--model", kDemo, "--sequence_length", "257"}, 2, "max_position_embeddings is 256");
  refused({"--model", kDemo, "--dtype", "fp32", "--accumulation_dtype", "bf16"}, 2,
          "--accumulation_dtype");
  refused({"--model", "/no/such/model"}, 1, "--model: ");
}

}  // namespace
}  // namespace zero::programs
