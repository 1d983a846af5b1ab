#include "tools/plan_table.h"

#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/support/flags.h"
#include "examples/support/text.h"
#include "tools/json_output.h"

namespace zero::tools {
namespace {

using Json = nlohmann::ordered_json;
using Values = std::array<int64_t, kPlanStages>;

constexpr char kStages[] = "     stage 0     stage 1     stage 2     stage 3\n";

int64_t SumWhere(const PlanColumn& column, bool host) {
  int64_t bytes = 0;
  for (int c = 0; c < kMemoryCategories; ++c) {
    if (IsHost(static_cast<MemoryCategory>(c)) == host) bytes += column.memory[c];
  }
  return bytes;
}

template <class Value>
Values Collect(const PlanTable& table, const Value& value_of) {
  Values values = {};
  for (int s = 0; s < kPlanStages; ++s) values[s] = value_of(table.columns[s]);
  return values;
}

std::string Title(const std::string& title) {
  return absl::StrCat(absl::StrFormat("%-18s", title), kStages);
}

std::string Row(const std::string& name, const Values& bytes) {
  std::string row = absl::StrFormat("%-18s", name);
  for (int64_t n : bytes) absl::StrAppendFormat(&row, "%12.3f", static_cast<double>(n) / 1e9);
  return row + "\n";
}

std::string RowUnlessZero(const std::string& name, const Values& bytes) {
  return bytes == Values{} ? "" : Row(name, bytes);
}

std::string MemoryText(const PlanTable& table) {
  std::string text = Title("GB on each rank");
  for (int c = 0; c < kMemoryCategories; ++c) {
    absl::StrAppend(&text,
                    RowUnlessZero(Name(static_cast<MemoryCategory>(c)),
                                  Collect(table, [&](const auto& x) { return x.memory[c]; })));
  }
  absl::StrAppend(
      &text, Row("all on the device", Collect(table, [](const auto& x) { return x.on_device(); })));
  if (table.offload.empty()) return text;
  return absl::StrCat(
      text, Row("all on the host", Collect(table, [](const auto& x) { return x.on_host(); })),
      RowUnlessZero("in its file", Collect(table, [](const auto& x) { return x.on_disk; })));
}

std::string WireText(const PlanTable& table) {
  std::string text = Title("GB sent in a step");
  std::set<std::string> names;
  for (const PlanColumn& column : table.columns) {
    for (const auto& [name, bytes] : column.wire) names.insert(name);
  }
  for (const std::string& name : names) {
    absl::StrAppend(&text, Row(name, Collect(table, [&](const PlanColumn& column) {
                                 const auto found = column.wire.find(name);
                                 return found == column.wire.end() ? 0 : found->second;
                               })));
  }
  return text;
}

std::string MovedText(const PlanTable& table) {
  const auto row = [&](const char* name, int64_t OffloadTraffic::*bytes) {
    return RowUnlessZero(name, Collect(table, [&](const auto& x) { return x.moved.*bytes; }));
  };
  return absl::StrCat(Title("GB moved in a step"),
                      row("from the device", &OffloadTraffic::from_device),
                      row("to the device", &OffloadTraffic::to_device),
                      row("read from disk", &OffloadTraffic::disk_read),
                      row("written to disk", &OffloadTraffic::disk_written));
}

// "the device lacks 1.234 GB", or how much is left of it; empty where it has no limit.
std::string LackText(const char* what, int64_t limit, int64_t lacks) {
  if (limit == 0) return "";
  const double gigabytes = static_cast<double>(lacks) / 1e9;
  return lacks > 0 ? absl::StrFormat("; %s lacks %.3f GB", what, gigabytes)
                   : absl::StrFormat("; %.3f GB of %s are left", -gigabytes, what);
}

std::string FitText(const PlanTable& table) {
  const PlanLimits& limits = table.limits;
  std::string text = "\nwithin";
  if (limits.device > 0)
    absl::StrAppend(&text, " --device_memory ", support::SizeText(limits.device));
  if (limits.host > 0) {
    absl::StrAppend(&text, limits.device > 0 ? " and" : "", " --host_memory ",
                    support::SizeText(limits.host), " of ", limits.ranks_per_process,
                    limits.ranks_per_process == 1 ? " rank" : " ranks");
  }
  for (int s = 0; s < kPlanStages; ++s) {
    const train::MemoryFit& fit = table.columns[s].fit;
    absl::StrAppend(&text, "\nstage ", s, "           ", fit.fits() ? "fits" : "does not fit",
                    LackText("the device", limits.device, fit.device_lacks),
                    LackText("the host", limits.host, fit.host_lacks));
  }
  return text + "\n";
}

Json ColumnJson(int stage, const PlanColumn& column, bool limited) {
  Json json = {{"stage", stage}};
  for (int c = 0; c < kMemoryCategories; ++c) {
    json["memory"][Name(static_cast<MemoryCategory>(c))] = column.memory[c];
  }
  json["on_device"] = column.on_device();
  json["on_host"] = column.on_host();
  json["on_disk"] = column.on_disk;
  json["wire"] = column.wire;
  json["moved"] = {{"to_device", column.moved.to_device},
                   {"from_device", column.moved.from_device},
                   {"disk_read", column.moved.disk_read},
                   {"disk_written", column.moved.disk_written}};
  if (limited) {
    json["fits"] = column.fit.fits();
    json["device_lacks"] = column.fit.device_lacks;
    json["host_lacks"] = column.fit.host_lacks;
  }
  return json;
}

}  // namespace

int64_t PlanColumn::on_device() const { return SumWhere(*this, false); }
int64_t PlanColumn::on_host() const { return SumWhere(*this, true); }

std::string TableText(const PlanTable& table) {
  const bool offloads = !table.offload.empty();
  std::string notes;
  for (const std::string& note : table.notes) absl::StrAppend(&notes, "note: ", note, "\n");
  return absl::StrCat(
      table.model, ": ", support::WithSeparators(table.parameters), " parameters in ", table.dtype,
      " on ", table.ranks, " ranks\n", offloads ? "offloaded: " + table.offload + "\n" : "", "\n",
      MemoryText(table), "\n", WireText(table), offloads ? "\n" + MovedText(table) : "",
      table.limits.any() ? FitText(table) : "", "(GB of 10^9 bytes; ", table.optimizer, ", ",
      table.master, " masters; without what the system and libraries take)\n", notes);
}

std::string TableJson(const PlanTable& table) {
  Json json = {{"model", table.model},         {"parameters", table.parameters},
               {"dtype", table.dtype},         {"ranks", table.ranks},
               {"optimizer", table.optimizer}, {"master", table.master},
               {"offload", table.offload},     {"notes", table.notes}};
  const bool limited = table.limits.any();
  if (limited) {
    json["device_memory"] = table.limits.device;
    json["host_memory"] = table.limits.host;
    json["ranks_per_process"] = table.limits.ranks_per_process;
  }
  if (!table.error.empty()) json["error"] = table.error;
  for (int s = 0; s < kPlanStages; ++s) {
    json["stages"].push_back(ColumnJson(s, table.columns[s], limited));
  }
  return JsonText(json);
}

}  // namespace zero::tools
