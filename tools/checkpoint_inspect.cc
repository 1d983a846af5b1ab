#include "tools/checkpoint_inspect.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/status.h"
#include "examples/support/text.h"
#include "io/problems.h"
#include "io/weight_folder.h"
#include "tools/json_output.h"
#include "tools/progress_bar.h"
#include "zero/save/checkpoint_folder.h"
#include "zero/save/checkpoint_reader.h"

namespace zero::tools {
namespace {

namespace fs = std::filesystem;

// Keys in the order in which they are set.
using Json = nlohmann::ordered_json;

constexpr int64_t kPieceBytes = 4 << 20;

std::string Count(int64_t count, const char* what) {
  return absl::StrCat(support::WithSeparators(count), " ", what, count == 1 ? "" : "s");
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsFloat(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// What is odd and does not make it unsound.
std::vector<std::string> NotesOn(const std::string& path, const CheckpointManifest& manifest) {
  const absl::Status named = CheckCheckpointName(path, manifest.step);
  if (named.ok()) return {};
  return {std::string(named.message())};
}

absl::StatusOr<Json> ReportCheckpoint(const std::string& path) {
  ZERO_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(path));
  std::map<std::string, int64_t> non_finite;
  {
    ProgressBar bar("verifying");
    ZERO_ASSIGN_OR_RETURN(non_finite, reader.VerifyFinite([&](int64_t done, int64_t total) {
      bar.Show(done, total);
    }));
  }
  const CheckpointManifest& manifest = reader.manifest();
  const CheckpointCounts& counts = manifest.counts;
  Json parameters = Json::array();
  int64_t elements = 0;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    const int64_t count = ElementCount(parameter);
    int64_t bytes = 0;
    Json states = Json::object();
    for (const auto& [state, dtype] : parameter.states) {
      states[state] = Name(dtype);
      bytes += count * SizeOf(dtype);
    }
    parameters.push_back({{"name", parameter.name},
                          {"unit", parameter.unit},
                          {"dtype", Name(parameter.dtype)},
                          {"shape", parameter.shape},
                          {"trainable", parameter.trainable},
                          {"aliases", parameter.aliases},
                          {"states", states},
                          {"bytes", bytes}});
    elements += count;
  }
  Json files = Json::array();
  int64_t bytes = 0;
  for (const CheckpointFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
    bytes += file.bytes;
  }
  return Json{{"path", path},
              {"sound", true},
              {"kind", "checkpoint"},
              {"step", manifest.step},
              {"world_size", manifest.world_size},
              {"stage", manifest.stage},
              {"optimizer", manifest.optimizer},
              {"weight_rounding", manifest.weight_rounding},
              {"counts",
               {{"steps", counts.steps},
                {"applied", counts.applied},
                {"last_applied_step", counts.last_applied_step},
                {"skipped", counts.skipped},
                {"consecutive_skips", counts.consecutive_skips}}},
              {"loss_scale", counts.loss_scale},
              {"parameters", parameters},
              {"elements", elements},
              {"files", files},
              {"bytes", bytes},
              {"non_finite", Json(non_finite)},
              {"attributes", Json(manifest.attributes)},
              {"configuration", manifest.configuration},
              {"notes", NotesOn(path, manifest)}};
}

// Reads all of a tensor, `done` bytes after the first one of all, and says what is in it.
absl::StatusOr<Json> ReportTensor(const SafetensorsFile& file, const SafetensorsTensor& tensor,
                                  int64_t done, int64_t total, ProgressBar& bar) {
  Json report{{"name", tensor.name},
              {"dtype", tensor.dtype},
              {"shape", tensor.shape},
              {"bytes", tensor.bytes()},
              {"file", fs::path(file.path()).filename().string()}};
  std::vector<float> values;
  std::vector<char> bytes;
  int64_t non_finite = 0;
  const int64_t count = IsFloat(tensor.dtype) ? tensor.elements() : tensor.bytes();
  const int64_t piece = IsFloat(tensor.dtype) ? kPieceBytes / 4 : kPieceBytes;
  for (int64_t first = 0; first < count; first += piece) {
    const auto n = static_cast<size_t>(std::min(piece, count - first));
    if (IsFloat(tensor.dtype)) {
      values.resize(n);
      ZERO_RETURN_IF_ERROR(file.Read(tensor.name, first, absl::MakeSpan(values)));
      non_finite += std::count_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    } else {
      bytes.resize(n);
      ZERO_RETURN_IF_ERROR(file.ReadBytes(tensor.name, first, absl::MakeSpan(bytes)));
    }
    bar.Show(done + tensor.bytes() * first / count, total);
  }
  if (IsFloat(tensor.dtype)) report["non_finite"] = non_finite;
  return report;
}

// `uses` says which tensors of the files count.
absl::StatusOr<Json> ReportWeights(
    const std::string& path, const char* kind, const std::vector<SafetensorsFile>& opened,
    const std::vector<std::string>& notes,
    const std::function<bool(const SafetensorsTensor& tensor)>& uses) {
  Json tensors = Json::array();
  Json files = Json::array();
  int64_t total = 0;
  int64_t elements = 0;
  for (const SafetensorsFile& file : opened) {
    int64_t bytes = 0;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (!uses(tensor)) continue;
      bytes += tensor.bytes();
      elements += tensor.elements();
    }
    files.push_back({{"name", fs::path(file.path()).filename().string()},
                     {"bytes", bytes},
                     {"metadata", Json(file.metadata())}});
    total += bytes;
  }
  ProgressBar bar("reading");
  int64_t done = 0;
  for (const SafetensorsFile& file : opened) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (!uses(tensor)) continue;
      ZERO_ASSIGN_OR_RETURN(Json report, ReportTensor(file, tensor, done, total, bar));
      tensors.push_back(std::move(report));
      done += tensor.bytes();
    }
  }
  return Json{{"path", path},         {"sound", true},  {"kind", kind},   {"tensors", tensors},
              {"elements", elements}, {"files", files}, {"bytes", total}, {"notes", notes}};
}

// What keeps it from being sound although it can be read: tensors with inf or NaN. Empty: nothing.
std::string Unsound(const Json& report) {
  std::vector<std::pair<std::string, int64_t>> found;
  if (report["kind"] == "checkpoint") {
    for (const auto& [name, count] : report["non_finite"].items()) found.emplace_back(name, count);
  } else {
    for (const Json& tensor : report["tensors"]) {
      const int64_t count = tensor.value("non_finite", int64_t{0});
      if (count > 0) found.emplace_back(tensor["name"], count);
    }
  }
  if (found.empty()) return "";
  Problems tensors;
  int64_t sum = 0;
  for (const auto& [name, count] : found) {
    tensors.Add(
        absl::StrCat(support::WithSeparators(count), " in '", absl::Utf8SafeCEscape(name), "'"));
    sum += count;
  }
  return absl::StrCat(Count(sum, "element"), sum == 1 ? " is" : " are",
                      " inf or NaN: ", tensors.text());
}

absl::StatusOr<Json> Report(const std::string& path) {
  std::error_code missing;
  if (!fs::exists(path, missing)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such file or folder; it must be a checkpoint, a folder with ",
                     kWeightFileName, " or ", kWeightIndexName, ", or a .safetensors file"));
  }
  if (!IsFolder(path)) {
    ZERO_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
    return ReportWeights(path, "file", {file}, {}, [](const auto&) { return true; });
  }
  std::error_code error;
  if (fs::exists(fs::path(path) / kManifestName, error)) return ReportCheckpoint(path);
  ZERO_ASSIGN_OR_RETURN(const bool weights, WeightFolder::In(path));
  if (weights) {
    ZERO_ASSIGN_OR_RETURN(const WeightFolder folder, WeightFolder::Open(path));
    return ReportWeights(path, "weights", folder.files(), folder.notes(), [&](const auto& tensor) {
      return folder.tensors().count(tensor.name) != 0;
    });
  }
  const absl::StatusOr<FoundCheckpoint> latest = LatestCheckpoint(path);
  return absl::NotFoundError(
      absl::StrCat(path, ": is no checkpoint (no ", kManifestName, ") and holds no weights (no ",
                   kWeightFileName, ")",
                   latest.ok() ? absl::StrCat("; its last checkpoint is ", latest->path) : ""));
}

// Columns as wide as they must be; the last one is not padded.
void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      line += row[c];
      if (c + 1 < row.size()) line.append(widths[c] - row[c].size() + 2, ' ');
    }
    std::cout << line << "\n";
  }
}

std::string ShapeText(const Json& shape) {
  return absl::StrCat("[", absl::StrJoin(shape.get<std::vector<int64_t>>(), ", "), "]");
}

// A name from a file, which may hold anything, for a terminal.
std::string Shown(const Json& name) { return absl::Utf8SafeCEscape(name.get<std::string>()); }

// The last line: how much there is of everything.
std::string Sum(const Json& report, const char* list, const char* what) {
  return absl::StrCat(Count(static_cast<int64_t>(report[list].size()), what), ", ",
                      Count(report["elements"], "element"), ", ", Count(report["bytes"], "byte"),
                      " in ", Count(static_cast<int64_t>(report["files"].size()), "file"));
}

void PrintCheckpoint(const Json& report) {
  const Json& counts = report["counts"];
  std::cout << report["path"].get<std::string>() << ": checkpoint of step " << report["step"]
            << (report["sound"] ? ", sound\n" : ", not sound\n")
            << report["optimizer"].get<std::string>() << ", stage " << report["stage"] << ", "
            << Count(report["world_size"], "rank") << "; " << counts["applied"] << " of "
            << counts["steps"] << " steps applied, " << counts["skipped"] << " skipped; loss scale "
            << support::ShortestNumber(report["loss_scale"].get<double>()) << "\n";
  for (const Json& note : report["notes"]) std::cout << "note: " << note.get<std::string>() << "\n";
  for (const auto& [name, value] : report["attributes"].items()) {
    // A value may be a whole file.
    const std::string text = value.dump();
    std::cout << "attribute " << absl::Utf8SafeCEscape(name) << ": "
              << (text.size() <= 80 ? text : absl::StrCat(text.size(), " characters")) << "\n";
  }
  std::vector<std::vector<std::string>> rows = {{"dtype", "shape", "states", "parameter"}};
  for (const Json& parameter : report["parameters"]) {
    std::vector<std::string> states;
    for (const auto& [state, dtype] : parameter["states"].items()) {
      states.push_back(absl::StrCat(state, " ", dtype.get<std::string>()));
    }
    std::string name = Shown(parameter["name"]);
    for (const Json& alias : parameter["aliases"]) absl::StrAppend(&name, " = ", Shown(alias));
    rows.push_back(
        {parameter["dtype"], ShapeText(parameter["shape"]), absl::StrJoin(states, ", "), name});
  }
  PrintTable(rows);
  std::cout << Sum(report, "parameters", "parameter") << "\n";
}

void PrintWeights(const Json& report) {
  std::cout << report["path"].get<std::string>() << ": "
            << (report["kind"] == "file" ? "safetensors file" : "weights of a model")
            << (report["sound"] ? ", sound\n" : ", not sound\n");
  for (const Json& note : report["notes"]) std::cout << "note: " << note.get<std::string>() << "\n";
  const bool several = report["files"].size() > 1;
  std::vector<std::vector<std::string>> rows = {{"dtype", "shape"}};
  if (several) rows[0].push_back("file");
  rows[0].push_back("tensor");
  for (const Json& tensor : report["tensors"]) {
    std::vector<std::string> row = {tensor["dtype"], ShapeText(tensor["shape"])};
    if (several) row.push_back(tensor["file"]);
    std::string name = Shown(tensor["name"]);
    const int64_t non_finite = tensor.value("non_finite", int64_t{0});
    if (non_finite > 0) absl::StrAppend(&name, "  (", non_finite, " inf or NaN)");
    row.push_back(name);
    rows.push_back(row);
  }
  PrintTable(rows);
  std::cout << Sum(report, "tensors", "tensor") << "\n";
}

class Inspect : public Subcommand {
 public:
  void AddFlags(support::FlagTable& flags) override {
    flags.AddSwitch("json", &json_, "print one JSON object, with \"error\" if something is wrong");
  }
  absl::Status Check() override { return absl::OkStatus(); }

  absl::Status Run(const std::string& path) override {
    absl::StatusOr<Json> report = Report(path);
    if (!report.ok()) {
      const std::string reason(report.status().message());
      if (json_) Print({{"path", path}, {"sound", false}, {"error", reason}});
      return report.status();
    }
    const std::string unsound = Unsound(*report);
    if (!unsound.empty()) {
      (*report)["sound"] = false;
      (*report)["error"] = unsound;
    }
    if (json_) {
      Print(*report);
    } else if ((*report)["kind"] == "checkpoint") {
      PrintCheckpoint(*report);
    } else {
      PrintWeights(*report);
    }
    if (unsound.empty()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path, ": ", unsound));
  }
  bool printed() const override { return printed_; }

 private:
  void Print(const Json& report) {
    std::cout << JsonText(report);
    printed_ = true;
  }

  bool json_ = false;
  bool printed_ = false;
};

}  // namespace

std::unique_ptr<Subcommand> MakeInspect() { return std::make_unique<Inspect>(); }

}  // namespace zero::tools
