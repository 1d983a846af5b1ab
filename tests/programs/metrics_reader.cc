#include "tests/programs/metrics_reader.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace zero::programs {

std::vector<MetricsRecord> ReadMetrics(const std::string& text) {
  std::vector<MetricsRecord> records;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    MetricsRecord record;
    for (const auto& [key, value] : json.items()) record.keys.push_back(key);
    json.at("step").get_to(record.step);
    json.at("loss").get_to(record.loss);
    json.at("learning_rate").get_to(record.learning_rate);
    const nlohmann::json& norm = json.at("grad_norm");
    record.grad_norm = norm.is_null() ? NAN : norm.get<double>();
    json.at("loss_scale").get_to(record.loss_scale);
    json.at("next_loss_scale").get_to(record.next_loss_scale);
    json.at("skipped").get_to(record.skipped);
    json.at("skipped_steps").get_to(record.skipped_steps);
    json.at("consecutive_skips").get_to(record.consecutive_skips);
    json.at("tokens").get_to(record.tokens);
    json.at("tokens_per_second").get_to(record.tokens_per_second);
    json.at("step_seconds").get_to(record.step_seconds);
    for (const auto& [name, use] : json.at("memory").items()) {
      use.at("current").get_to(record.current[name]);
      use.at("peak").get_to(record.peak[name]);
    }
    json.at("wire").get_to(record.wire);
    if (json.contains("evaluation_loss")) {
      record.evaluation_loss = json.at("evaluation_loss").get<double>();
    }
    records.push_back(record);
  }
  return records;
}

std::vector<std::string> TextOf(const std::string& key, const std::string& text) {
  const std::string start = "\"" + key + "\": ";
  std::vector<std::string> values;
  for (size_t at = text.find(start); at != std::string::npos; at = text.find(start, at)) {
    at += start.size();
    values.push_back(text.substr(at, text.find_first_of(",}", at) - at));
  }
  return values;
}

std::string WithoutTimes(const std::string& text) {
  std::string rest = text;
  for (const std::string key :
       {"tokens_per_second", "step_seconds", "evaluation", "evaluation_loss"}) {
    const std::string start = "\"" + key + "\": ";
    for (size_t at = rest.find(start); at != std::string::npos; at = rest.find(start)) {
      size_t end = rest.find_first_of(",}", at);
      if (rest[end] == ',') {
        end += 2;  // ", "
      } else if (rest[at - 2] == ',') {
        at -= 2;
      }
      rest.erase(at, end - at);
    }
  }
  return rest;
}

}  // namespace zero::programs
