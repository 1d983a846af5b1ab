#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/golden/golden.h"
#include "tests/io/temporary_folder.h"
#include "tests/programs/metrics_reader.h"
#include "tests/programs/subprocess.h"

namespace zero::golden {
namespace {

using Json = nlohmann::json;

std::vector<float> Elements(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  std::vector<float> elements(static_cast<size_t>(count));
  REQUIRE_OK(file.Read(tensor.name, 0, absl::MakeSpan(elements)));
  return elements;
}

double NormOf(const std::vector<float>& elements) {
  double sum = 0;
  for (const float x : elements) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// Each element that PyTorch's file has, and each tensor's norm.
void CheckWeights(const std::string& path, const Json& golden) {
  const auto ours = SafetensorsFile::Open(path);
  REQUIRE_OK(ours.status());
  const auto theirs = SafetensorsFile::Open(Folder() + "/training_run.safetensors");
  REQUIRE_OK(theirs.status());
  const double rate = golden["settings"]["rate"];
  const auto stride = golden["settings"]["stride"].get<size_t>();
  REQUIRE(theirs->tensors().size() == 39);
  REQUIRE(ours->tensors().size() == 39);
  for (const SafetensorsTensor& tensor : theirs->tensors()) {
    const auto found = ours->Find(tensor.name);
    REQUIRE_OK(found.status());
    const std::vector<float> all = Elements(*ours, **found);
    const std::vector<float> expected = Elements(*theirs, tensor);
    REQUIRE(expected.size() == (all.size() + stride - 1) / stride);
    double farthest = 0;
    double squares = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference =
          static_cast<double>(all[i * stride]) - static_cast<double>(expected[i]);
      farthest = std::max(farthest, std::abs(difference));
      squares += difference * difference;
    }
    CAPTURE(tensor.name);
    CHECK(farthest <= 0.02 * rate);
    CHECK(std::sqrt(squares) <= 1e-5 * NormOf(expected));
    CHECK(NormOf(all) ==
          Approx(golden["weight_norms"][tensor.name].get<double>()).epsilon(1e-5).margin(0));
  }
}

TEST_CASE("zero-train: a run from a folder of transformers is PyTorch's in every stage") {
  const Json golden = Read("training_run.json");
  const Json& settings = golden["settings"];
  const auto batch = settings["batch"].get<int>();
  const std::string folder = Folder() + "/llama";
  const int ranks = GENERATE(1, 2, 4);
  const int stage = GENERATE(0, 1, 2, 3);
  CAPTURE(ranks, stage);
  const TemporaryFolder temporary;
  const std::string output = temporary.File("output");
  const std::string metrics = temporary.File("metrics");
  const programs::Outcome outcome = programs::RunProgram(
      "zero-train",
      {"--model", folder, "--data", folder + "/tokens.txt", "--dtype=fp32", "--shuffle=false",
       absl::StrCat("--steps=", settings["steps"].get<int>()),
       absl::StrCat("--sequence_length=", settings["sequence_length"].get<int>()),
       absl::StrCat("--learning_rate=", settings["rate"].get<double>()),
       absl::StrCat("--weight_decay=", settings["weight_decay"].get<double>()),
       absl::StrCat("--clip=", settings["clip"].get<double>()), absl::StrCat("--stage=", stage),
       absl::StrCat("--ranks=", ranks), absl::StrCat("--micro_batch=", batch / ranks), "--output",
       output, "--metrics", metrics});
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  const std::vector<programs::MetricsRecord> records = programs::ReadMetrics(ReadFile(metrics));
  REQUIRE(records.size() == golden["losses"].size());
  for (size_t i = 0; i < records.size(); ++i) {
    CAPTURE(i);
    const double loss = golden["losses"][i];
    const double norm = golden["norms"][i];
    CHECK(std::abs(records[i].loss - loss) <= 1e-5 * loss);
    CHECK(std::abs(records[i].grad_norm - norm) <= 1e-4 * norm);
  }
  CheckWeights(output + "/model.safetensors", golden);
}

}  // namespace
}  // namespace zero::golden
