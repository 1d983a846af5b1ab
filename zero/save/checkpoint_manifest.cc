#include "zero/save/checkpoint_manifest.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collectives/handshake.h"
#include "device/status.h"
#include "io/checksummed_file.h"
#include "io/crc32c.h"
#include "io/folder.h"
#include "io/relaxed_json.h"
#include "zero/config.h"
#include "zero/layout.h"
#include "zero/model.h"
#include "zero/save/json_fields.h"

namespace zero {
namespace {

constexpr size_t kChecksumDigits = 8;
constexpr int64_t kManifestLimit = int64_t{64} << 20;

// The last key: the CRC32C of the text before it.
constexpr const char* kOwnChecksum = "manifest_crc32c";

std::string Digits(uint32_t checksum) { return absl::StrFormat("%08x", checksum); }

std::string QuotedList(const std::vector<std::string>& texts) {
  const auto quote = [](std::string* out, const std::string& text) { *out += Quoted(text); };
  return absl::StrCat("[", absl::StrJoin(texts, ", ", quote), "]");
}

// Items one below the other, `indent` spaces in.
std::string Lines(const std::vector<std::string>& items, int indent, const char* open,
                  const char* close) {
  if (items.empty()) return absl::StrCat(open, close);
  const std::string spaces(static_cast<size_t>(indent), ' ');
  const std::string between = ",\n" + spaces + "  ";
  return absl::StrCat(open, "\n", spaces, "  ", absl::StrJoin(items, between), "\n", spaces, close);
}

std::string Format(const CheckpointParameter& parameter) {
  std::vector<std::string> states;
  for (const auto& [state, dtype] : parameter.states) {
    states.push_back(absl::StrCat(Quoted(state), ": ", Quoted(Name(dtype))));
  }
  return absl::StrCat("{\"name\": ", Quoted(parameter.name), ", \"unit\": ", Quoted(parameter.unit),
                      ", \"shape\": [", absl::StrJoin(parameter.shape, ", "),
                      "], \"dtype\": ", Quoted(Name(parameter.dtype)),
                      ", \"trainable\": ", parameter.trainable ? "true" : "false",
                      ", \"aliases\": ", QuotedList(parameter.aliases), ", \"states\": {",
                      absl::StrJoin(states, ", "), "}}");
}

std::string Format(const CheckpointFile& file) {
  std::string digits;
  digits.reserve(file.checksums.size() * kChecksumDigits);
  for (const uint32_t checksum : file.checksums) digits += Digits(checksum);
  const auto piece = [](std::string* out, const CheckpointPiece& p) {
    absl::StrAppend(out, "[", p.parameter, ", ", p.first, ", ", p.count, "]");
  };
  return absl::StrCat("{\"name\": ", Quoted(file.name), ", \"bytes\": ", file.bytes,
                      ", \"block_bytes\": ", kChecksumBlock, ",\n     \"crc32c\": ", Quoted(digits),
                      ",\n     \"pieces\": [", absl::StrJoin(file.pieces, ", ", piece), "]}");
}

DType DTypeOf(const JsonField& field) {
  return ParseDType(field.Choice({"fp32", "bf16", "fp16"})).value_or(DType::kF32);
}

std::vector<std::string> Texts(const JsonField& field) {
  std::vector<std::string> texts;
  for (const JsonField& item : field.Items()) texts.push_back(item.Text());
  return texts;
}

float PositiveFloat(const JsonField& field) {
  const double number = field.Number();
  if (number > 0 && number <= std::numeric_limits<float>::max()) return static_cast<float>(number);
  field.Refuse("must be positive, and finite in fp32");
  return 1;
}

void ReadCounts(const JsonField& root, CheckpointManifest& manifest) {
  CheckpointCounts& counts = manifest.counts;
  const JsonField steps = root.Member("counts");
  steps.MustHave({"steps", "applied", "last_applied_step", "skipped", "consecutive_skips"});
  counts.steps = steps.Member("steps").Integer(0);
  counts.applied = steps.Member("applied").Integer(0);
  counts.last_applied_step = steps.Member("last_applied_step").Integer(0);
  counts.skipped = steps.Member("skipped").Integer(0);
  counts.consecutive_skips = steps.Member("consecutive_skips").Integer(0);

  const JsonField scale = root.Member("loss_scale");
  scale.MustHave({"scale", "hysteresis", "iterations", "last_overflow", "clean"});
  counts.loss_scale = PositiveFloat(scale.Member("scale"));
  counts.hysteresis = scale.Member("hysteresis").Integer(0, INT32_MAX);
  counts.iterations = scale.Member("iterations").Integer(0);
  counts.last_overflow = scale.Member("last_overflow").Integer(-1);
  counts.clean = scale.Member("clean").Integer(0);

  const JsonField random = root.Member("random");
  random.MustHave({"rounding_seed"});
  manifest.rounding_seed = random.Member("rounding_seed").Unsigned();
}

// The states that a parameter must and may have; see the header.
void CheckStates(const JsonField& field, const CheckpointParameter& parameter) {
  const char* const first = parameter.trainable ? kMasterState : kWeightState;
  if (parameter.states.count(first) == 0) {
    field.Refuse(absl::StrCat("has no '", first, "', which a ",
                              parameter.trainable ? "trainable" : "frozen", " parameter has"));
  }
  for (const auto& [state, dtype] : parameter.states) {
    const bool moment = state == kMoment1State || state == kMoment2State;
    if (state != first && !(parameter.trainable && moment)) {
      field.Refuse(absl::StrCat("has ", Quoted(state.substr(0, 80)), ", which a ",
                                parameter.trainable ? "trainable" : "frozen",
                                " parameter has not"));
    }
    const bool own = state != kMoment1State && state != kMoment2State && dtype == parameter.dtype;
    const bool wide = state != kWeightState && dtype == DType::kF32;
    if (!own && !wide) {
      field.Member(state).Refuse(absl::StrCat("is ", Name(dtype), "; that of a ",
                                              Name(parameter.dtype), " parameter cannot be"));
    }
  }
}

CheckpointParameter ReadParameter(const JsonField& field) {
  field.MustHave({"name", "unit", "shape", "dtype", "trainable", "aliases", "states"});
  CheckpointParameter parameter;
  parameter.name = field.Member("name").Text();
  parameter.unit = field.Member("unit").Text();
  for (const JsonField& size : field.Member("shape").Items()) {
    parameter.shape.push_back(size.Integer(0));
  }
  if (ElementCount(parameter) < 0) field.Member("shape").Refuse("has too many elements");
  parameter.dtype = DTypeOf(field.Member("dtype"));
  parameter.trainable = field.Member("trainable").Switch();
  parameter.aliases = Texts(field.Member("aliases"));
  for (const auto& [state, dtype] : field.Member("states").Members()) {
    parameter.states[state] = DTypeOf(dtype);
  }
  CheckStates(field.Member("states"), parameter);
  return parameter;
}

void ReadParameters(const JsonField& list, CheckpointManifest& manifest) {
  std::set<std::string> names;
  for (const JsonField& field : list.Items()) {
    CheckpointParameter parameter = ReadParameter(field);
    std::vector<std::string> own = parameter.aliases;
    own.push_back(parameter.name);
    for (const std::string& name : own) {
      if (!names.insert(name).second) {
        field.Refuse(
            absl::StrCat("has the name ", Quoted(name.substr(0, 80)), ", which occurs twice"));
      }
    }
    manifest.parameters.push_back(std::move(parameter));
  }
}

std::vector<uint32_t> ReadChecksums(const JsonField& field, int64_t bytes) {
  std::vector<uint32_t> checksums;
  const std::string digits = field.Text();
  const int64_t blocks = bytes / kChecksumBlock + (bytes % kChecksumBlock != 0 ? 1 : 0);
  if (digits.size() % kChecksumDigits != 0 ||
      static_cast<int64_t>(digits.size() / kChecksumDigits) != blocks) {
    field.Refuse(absl::StrCat("has ", digits.size(), " digits; ", bytes, " bytes are ", blocks,
                              " blocks of ", kChecksumBlock, ", with ", kChecksumDigits,
                              " digits each"));
    return checksums;
  }
  checksums.reserve(static_cast<size_t>(blocks));
  uint32_t checksum = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    const char c = digits[i];
    const bool number = c >= '0' && c <= '9';
    if (!number && !(c >= 'a' && c <= 'f')) {
      field.Refuse(absl::StrCat("has something else than hexadecimal digits at digit ", i));
      return checksums;
    }
    checksum = checksum << 4 | static_cast<uint32_t>(number ? c - '0' : c - 'a' + 10);
    if (i % kChecksumDigits == kChecksumDigits - 1) checksums.push_back(checksum);
  }
  return checksums;
}

// A name in the checkpoint's folder.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name != kManifestName &&
         name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::vector<CheckpointPiece> ReadPieces(const JsonField& list, const CheckpointManifest& manifest) {
  std::vector<CheckpointPiece> pieces;
  std::set<int64_t> seen;
  const auto parameters = static_cast<int64_t>(manifest.parameters.size());
  for (const JsonField& field : list.Items()) {
    const std::vector<JsonField> numbers = field.Items();
    if (numbers.size() != 3) field.Refuse("does not have three numbers");
    if (numbers.size() != 3) continue;
    CheckpointPiece piece;
    piece.parameter = numbers[0].Integer(0, parameters - 1);
    if (piece.parameter >= parameters) continue;
    const CheckpointParameter& parameter = manifest.parameters[piece.parameter];
    const int64_t elements = ElementCount(parameter);
    piece.first = numbers[1].Integer(0, elements);
    piece.count = numbers[2].Integer(1);
    if (piece.count > elements - piece.first) {
      field.Refuse(absl::StrCat("goes past the end of ", Quoted(parameter.name), ", which has ",
                                elements, " elements"));
    }
    if (!seen.insert(piece.parameter).second) {
      field.Refuse(absl::StrCat("is a second piece of ", Quoted(parameter.name)));
    }
    pieces.push_back(piece);
  }
  return pieces;
}

void ReadFiles(const JsonField& list, CheckpointManifest& manifest) {
  std::set<std::string> names;
  for (const JsonField& field : list.Items()) {
    field.MustHave({"name", "bytes", "block_bytes", "crc32c", "pieces"});
    CheckpointFile file;
    file.name = field.Member("name").Text();
    if (!IsPlainName(file.name)) {
      field.Member("name").Refuse(absl::StrCat("is ", Quoted(file.name.substr(0, 80)),
                                               "; it must be the name of a file in this folder"));
    }
    if (!names.insert(file.name).second) {
      field.Member("name").Refuse(absl::StrCat("is ", Quoted(file.name), ", which occurs twice"));
    }
    file.bytes = field.Member("bytes").Integer(8);
    field.Member("block_bytes").Integer(kChecksumBlock, kChecksumBlock);
    file.checksums = ReadChecksums(field.Member("crc32c"), file.bytes);
    file.pieces = ReadPieces(field.Member("pieces"), manifest);
    manifest.files.push_back(std::move(file));
  }
  const auto files = static_cast<int64_t>(manifest.files.size());
  if (files != manifest.world_size) {
    list.Refuse(absl::StrCat("has ", files, " files, but world_size is ", manifest.world_size));
  }
}

// Each element of each parameter is in one file.
void CheckCoverage(const JsonField& parameters, const CheckpointManifest& manifest) {
  std::vector<std::vector<CheckpointPiece>> pieces(manifest.parameters.size());
  for (const CheckpointFile& file : manifest.files) {
    for (const CheckpointPiece& piece : file.pieces) pieces[piece.parameter].push_back(piece);
  }
  for (size_t p = 0; p < pieces.size(); ++p) {
    std::sort(pieces[p].begin(), pieces[p].end(),
              [](const CheckpointPiece& a, const CheckpointPiece& b) { return a.first < b.first; });
    int64_t covered = 0;
    const auto refuse = [&](const char* how) {
      parameters.Items()[p].Refuse(
          absl::StrCat(Quoted(manifest.parameters[p].name), ": element ", covered, " is in ", how));
    };
    for (const CheckpointPiece& piece : pieces[p]) {
      if (piece.first > covered) return refuse("no file");
      if (piece.first < covered) {
        covered = piece.first;
        return refuse("two files");
      }
      covered = piece.first + piece.count;
    }
    if (covered < ElementCount(manifest.parameters[p])) return refuse("no file");
  }
}

// Whether the text is what was written. Looked at last, so that a wrong key is named as such.
void CheckOwnChecksum(const JsonField& root, const std::string& text) {
  const size_t at = text.rfind(Quoted(kOwnChecksum));
  const JsonField field = root.Member(kOwnChecksum);
  if (at == std::string::npos || root.Members().back().first != kOwnChecksum) {
    return field.Refuse("is not the last key");
  }
  const std::string digits = Digits(Crc32c(0, {text.data(), at}));
  const std::string said = field.Text();
  if (said == digits) return;
  field.Refuse(absl::StrCat("is ", Quoted(said.substr(0, 80)),
                            ", but that of the text before it is ", Quoted(digits),
                            ": the manifest is damaged"));
}

absl::StatusOr<CheckpointManifest> ReadDocument(const JsonValue& document,
                                                const std::string& text) {
  absl::Status error;
  const JsonField root(&document, "", &error);
  const int64_t format = root.Member("format").Integer(1);
  ZERO_RETURN_IF_ERROR(error);
  if (format > kCheckpointFormat) {
    return absl::UnimplementedError(absl::StrCat("format ", format, " is newer than ",
                                                 kCheckpointFormat,
                                                 ", the newest that this version reads"));
  }
  root.MustHave({"format", "written_by", "step", "world_size", "stage", "optimizer",
                 "weight_rounding", "counts", "loss_scale", "random", "configuration", "layout",
                 "parameters", "files", "attributes", kOwnChecksum});
  CheckpointManifest manifest;
  root.Member("written_by").Text();
  manifest.step = root.Member("step").Integer(0);
  manifest.world_size = static_cast<int>(root.Member("world_size").Integer(1, 1 << 20));
  manifest.stage = static_cast<int>(root.Member("stage").Integer(0, 3));
  manifest.optimizer = root.Member("optimizer")
                           .Choice({Name(OptimizerKind::kAdamW), Name(OptimizerKind::kAdam),
                                    Name(OptimizerKind::kSgd), Name(OptimizerKind::kLion)});
  manifest.weight_rounding =
      root.Member("weight_rounding")
          .Choice({Name(WeightRounding::kNearestEven), Name(WeightRounding::kNearestAway)});
  ReadCounts(root, manifest);
  manifest.configuration = Texts(root.Member("configuration"));
  const JsonField layout = root.Member("layout");
  layout.MustHave({"parameter_alignment", "slice_alignment"});
  layout.Member("parameter_alignment").Integer(1);
  layout.Member("slice_alignment").Integer(1);
  ReadParameters(root.Member("parameters"), manifest);
  // What follows looks parameters up.
  ZERO_RETURN_IF_ERROR(error);
  ReadFiles(root.Member("files"), manifest);
  ZERO_RETURN_IF_ERROR(error);
  CheckCoverage(root.Member("parameters"), manifest);
  for (const auto& [name, value] : root.Member("attributes").Members()) {
    manifest.attributes[name] = value.Text();
  }
  CheckOwnChecksum(root, text);
  ZERO_RETURN_IF_ERROR(error);
  return manifest;
}

}  // namespace

std::string CheckpointTensorName(const std::string& state, const CheckpointParameter& parameter) {
  return absl::StrCat(state, "/", parameter.name);
}

int64_t ElementCount(const CheckpointParameter& parameter) {
  Parameter shaped;
  shaped.shape = parameter.shape;
  return ElementCount(shaped);
}

std::string FormatManifest(const CheckpointManifest& manifest) {
  std::vector<std::string> parameters, files, attributes, configuration;
  for (const CheckpointParameter& parameter : manifest.parameters) {
    parameters.push_back(Format(parameter));
  }
  for (const CheckpointFile& file : manifest.files) files.push_back(Format(file));
  for (const auto& [name, value] : manifest.attributes) {
    attributes.push_back(absl::StrCat(Quoted(name), ": ", Quoted(value)));
  }
  for (const std::string& line : manifest.configuration) configuration.push_back(Quoted(line));
  const CheckpointCounts& counts = manifest.counts;
  std::string text = absl::StrCat(
      "{\n  \"format\": ", kCheckpointFormat, ",\n  \"written_by\": \"zero ", LibraryVersion(),
      "\"", ",\n  \"step\": ", manifest.step, ",\n  \"world_size\": ", manifest.world_size,
      ",\n  \"stage\": ", manifest.stage, ",\n  \"optimizer\": ", Quoted(manifest.optimizer),
      ",\n  \"weight_rounding\": ", Quoted(manifest.weight_rounding),
      absl::StrCat(",\n  \"counts\": {\"steps\": ", counts.steps, ", \"applied\": ", counts.applied,
                   ", \"last_applied_step\": ", counts.last_applied_step, ", \"skipped\": ",
                   counts.skipped, ", \"consecutive_skips\": ", counts.consecutive_skips, "}"),
      absl::StrCat(",\n  \"loss_scale\": {\"scale\": ", absl::StrFormat("%.9g", counts.loss_scale),
                   ", \"hysteresis\": ", counts.hysteresis, ", \"iterations\": ", counts.iterations,
                   ", \"last_overflow\": ", counts.last_overflow, ", \"clean\": ", counts.clean,
                   "}"),
      ",\n  \"random\": {\"rounding_seed\": ", manifest.rounding_seed, "}",
      ",\n  \"configuration\": ", Lines(configuration, 2, "[", "]"),
      ",\n  \"layout\": {\"parameter_alignment\": ", kParameterAlignment,
      ", \"slice_alignment\": ", kSliceAlignment, "}",
      ",\n  \"parameters\": ", Lines(parameters, 2, "[", "]"),
      ",\n  \"files\": ", Lines(files, 2, "[", "]"),
      ",\n  \"attributes\": ", Lines(attributes, 2, "{", "}"), ",\n  ");
  absl::StrAppend(&text, Quoted(kOwnChecksum), ": ", Quoted(Digits(Crc32c(0, text))), "\n}\n");
  return text;
}

absl::StatusOr<CheckpointManifest> ParseManifest(const std::string& text) {
  std::vector<JsonProblem> problems;
  const std::optional<JsonValue> document = ReadStrictJson(text, problems);
  if (!document.has_value()) {
    return absl::DataLossError(absl::StrCat(ToString(problems[0].place), ": ", problems[0].text));
  }
  return ReadDocument(*document, text);
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kManifestName);
  ZERO_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path, kManifestLimit));
  absl::StatusOr<CheckpointManifest> manifest = ParseManifest(text);
  if (manifest.ok()) return manifest;
  return absl::Status(manifest.status().code(),
                      absl::StrCat(path, ": ", manifest.status().message()));
}

}  // namespace zero
