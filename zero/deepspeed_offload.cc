#include <array>

#include "absl/strings/str_cat.h"
#include "io/relaxed_json.h"
#include "zero/deepspeed_sections.h"

namespace zero {
namespace {

constexpr char kStage[] = "zero_optimization.stage";
constexpr char kOptimizer[] = "zero_optimization.offload_optimizer";
constexpr char kParameters[] = "zero_optimization.offload_param";
constexpr char kOldPinMemory[] = "zero_optimization.cpu_offload_use_pin_memory";
constexpr char kPath[] = "nvme_path";  // of the caller, for both sections

std::string Key(const char* section, const char* name) { return absl::StrCat(section, ".", name); }

// One of the two sections, and what it asks for.
struct Section {
  const char* path;
  const char* old_path;
  Place place = Place::kDevice;
  std::string said_by;  // the key or the flag, with its value

  bool offloads() const { return place != Place::kDevice; }
};

// Of a key that is in the file, but belongs to something that is not asked for.
void NoteUnused(DeepSpeedValues& values, const std::string& path, const std::string& why) {
  const JsonValue* value = values.Find(path);
  if (value != nullptr && !values.IsAuto(path)) {
    values.Note(absl::StrCat(values.Spelled(path), " is not used: ", why));
  }
}

void SetPlace(const std::string& device, Section& section) {
  section.place =
      device == "cpu" ? Place::kHost : (device == "nvme" ? Place::kNvme : Place::kDevice);
}

// "cpu_offload": true, whose place is memory of the host.
void ReadOldForm(DeepSpeedValues& values, Section& section) {
  const std::string path = section.old_path;
  if (values.Find(path) == nullptr || values.IsAuto(path)) return;
  if (values.Find(section.path) != nullptr) {
    values.Problem(path,
                   absl::StrCat(path, " is the old form of ", section.path, "; keep the new one"));
  }
  const bool on = values.MaybeSwitch(path).value_or(false);
  const std::string device = on ? "cpu" : "none";
  const std::string key = Key(section.path, "device");
  const CallerValue* given = values.Given(key);
  const auto* known = given == nullptr ? nullptr : std::get_if<std::string>(&given->value);
  if (known != nullptr && *known != device) {
    values.Problem(path, absl::StrCat(path, " is ", on ? "true" : "false", ", but ", given->name,
                                      " is ", Quoted(*known)));
    return;
  }
  if (on) values.Note(absl::StrCat(path, " is taken as ", key, " \"cpu\", its present form"));
  SetPlace(device, section);
  section.said_by = absl::StrCat(path, " is true");
}

Section ReadSection(DeepSpeedValues& values, const char* path, const char* old_path) {
  Section section{path, old_path, Place::kDevice, ""};
  const std::string key = Key(path, "device");
  const std::string device = values.MaybeChoice(key, {"none", "cpu", "nvme"}).value_or("none");
  const bool in_file = values.Find(key) != nullptr && !values.IsAuto(key);
  SetPlace(device, section);
  section.said_by = absl::StrCat(
      in_file || values.Given(key) == nullptr ? key : values.Given(key)->name, " is ", device);
  ReadOldForm(values, section);
  return section;
}

void CheckPlaces(DeepSpeedValues& values, int64_t stage, const Section& optimizer,
                 const Section& parameters) {
  const auto problem = [&](const Section& section, const auto&... text) {
    const bool old = values.Find(section.old_path) != nullptr;
    values.Problem(old ? section.old_path : Key(section.path, "device"),
                   absl::StrCat(section.said_by, text...));
  };
  if (optimizer.offloads() && stage == 0) {
    problem(optimizer, ": it moves sharded states, which need ", kStage, " 1, 2 or 3, not 0");
  }
  if (!parameters.offloads()) return;
  if (stage < 3) {
    problem(parameters, ": it moves sharded weights, which need ", kStage, " 3, not ", stage);
  } else if (!optimizer.offloads()) {
    problem(parameters, ", but ", Key(kOptimizer, "device"),
            " is none: weights are offloaded only together with their states");
  }
}

// The folder of a section that is on a disk; empty: none is known.
std::string ReadPath(DeepSpeedValues& values, const Section& section) {
  const std::string key = Key(section.path, kPath);
  const std::string in_file = values.MaybeText(key).value_or("");
  if (section.place != Place::kNvme) {
    NoteUnused(values, key, absl::StrCat(section.path, ".device is not nvme"));
    return "";
  }
  const std::string known = values.GivenAs<std::string>(kPath).value_or("");
  const JsonValue* value = values.Find(key);
  const bool wrong = value != nullptr && value->kind != JsonValue::Kind::kString;  // said already
  if (in_file.empty() && known.empty() && !wrong) {
    values.Problem(Key(section.path, "device"),
                   absl::StrCat(key, " is missing; device \"nvme\" needs a folder"));
  } else if (!in_file.empty() && !known.empty() && in_file != known) {
    values.Problem(key, absl::StrCat(key, " is ", Quoted(in_file), ", but ",
                                     values.Given(kPath)->name, " is ", Quoted(known)));
  }
  const std::string path = in_file.empty() ? known : in_file;
  values.Resolve(key, Quoted(path));
  return path;
}

void ReadPaths(DeepSpeedValues& values, const Section& optimizer, const Section& parameters,
               Offload& offload) {
  const std::string first = ReadPath(values, optimizer);
  const std::string second = ReadPath(values, parameters);
  if (!first.empty() && !second.empty() && first != second) {
    values.Problem(Key(kParameters, kPath),
                   absl::StrCat(Key(kParameters, kPath), " is ", Quoted(second), ", but ",
                                Key(kOptimizer, kPath), " is ", Quoted(first),
                                "; all that is offloaded to a disk lies in one folder"));
  }
  offload.nvme_path = first.empty() ? second : first;
}

// Of all memory of the host that is offloaded to.
bool ReadPinMemory(DeepSpeedValues& values, const Section& optimizer, const Section& parameters) {
  const std::string key = Key(kOptimizer, "pin_memory");
  const std::string other = Key(kParameters, "pin_memory");
  if (values.Find(kOldPinMemory) != nullptr && values.Find(key) != nullptr) {
    values.Problem(kOldPinMemory,
                   absl::StrCat(kOldPinMemory, " is the old form of ", key, "; keep the new one"));
  }
  const std::optional<bool> old = values.MaybeSwitch(kOldPinMemory);
  const std::optional<bool> of_states = values.MaybeSwitch(key);
  const std::optional<bool> of_weights = values.MaybeSwitch(other);
  if (!optimizer.offloads()) {
    for (const std::string& path : {std::string(kOldPinMemory), key}) {
      NoteUnused(values, path, "no states are offloaded");
    }
    return true;
  }
  if (!parameters.offloads()) NoteUnused(values, other, "no weights are offloaded");
  const bool only_weights = parameters.offloads() && of_weights.has_value();
  const bool pin = of_states.value_or(old.value_or(only_weights ? *of_weights : true));
  if (only_weights && *of_weights != pin) {
    values.Note(absl::StrCat(values.Spelled(other), " is ", *of_weights ? "true" : "false",
                             ", but all memory of the host is alike: pin_memory of the states, ",
                             pin ? "true" : "false", ", counts"));
  }
  values.Resolve(key, pin ? "true" : "false");
  return pin;
}

}  // namespace

void ReadOffload(DeepSpeedValues& values, int64_t stage, Offload& offload) {
  const Section optimizer = ReadSection(values, kOptimizer, "zero_optimization.cpu_offload");
  const Section parameters =
      ReadSection(values, kParameters, "zero_optimization.cpu_offload_param");
  const size_t problems = values.problems();
  CheckPlaces(values, stage, optimizer, parameters);
  for (const Section* section : {&optimizer, &parameters}) {
    if (section->offloads()) {
      values.Resolve(Key(section->path, "device"), Quoted(Name(section->place)));
    }
  }
  ReadPaths(values, optimizer, parameters, offload);
  const auto part = [](double value) { return value > 0 && value <= 1; };
  const std::string ratio = Key(kOptimizer, "ratio");
  const std::string count = Key(kOptimizer, "buffer_count");
  const char* const wanted = "above 0 and at most 1";
  if (optimizer.offloads()) {
    offload.ratio = values.Number(ratio, offload.ratio, part, wanted);
    offload.buffer_count = values.Count(count, offload.buffer_count, 2, 1024);
  } else {
    (void)values.MaybeNumber(ratio, part, wanted);
    for (const std::string& key : {ratio, count}) {
      NoteUnused(values, key, "no states are offloaded");
    }
  }
  offload.pin_memory = ReadPinMemory(values, optimizer, parameters);
  // Wrong places are said above, by key.
  if (values.problems() != problems) return;
  offload.optimizer = optimizer.place;
  offload.parameters = parameters.place;
}

}  // namespace zero
