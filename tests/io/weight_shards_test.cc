#include "io/weight_shards.h"

#include "absl/strings/str_cat.h"
#include "io/weight_index.h"
#include "tests/catch.h"

namespace zero {
namespace {

// "a b | c": the tensors of each shard.
std::string Spread(const std::vector<int64_t>& bytes, int64_t limit) {
  std::vector<SafetensorsTensor> tensors;
  for (size_t i = 0; i < bytes.size(); ++i) {
    tensors.push_back({std::string(1, static_cast<char>('a' + i)), "U8", {bytes[i]}});
  }
  const auto shards = PlanShards(tensors, limit);
  REQUIRE_OK(shards.status());
  std::string text;
  for (const Shard& shard : *shards) {
    if (!text.empty()) text += "| ";
    int64_t sum = 0;
    for (const SafetensorsTensor& tensor : shard.tensors) {
      text += tensor.name + " ";
      sum += tensor.shape[0];
    }
    CHECK(sum == shard.data_bytes);
  }
  return text;
}

TEST_CASE("WeightShards: tensors fill shards in their order up to the limit and no further") {
  CHECK(Spread({4, 4, 2, 8}, 10) == "a b c | d ");
  CHECK(Spread({4, 4, 3, 8}, 10) == "a b | c | d ");
  CHECK(Spread({4, 4, 2, 8}, 18) == "a b c d ");
  CHECK(Spread({4, 4, 2, 8}, 1) == "a | b | c | d ");
  CHECK(Spread({30, 4, 30, 30, 4}, 10) == "a | b | c | d | e ");
  CHECK(Spread({10, 0, 0, 1, 0}, 10) == "a b c | d e ");
  CHECK(Spread({0, 30, 0}, 10) == "a | b | c ");
  CHECK(Spread({}, 10).empty());
}

TEST_CASE("WeightShards: one shard is the single file and several carry their number and count") {
  const SafetensorsTensor a{"a", "F32", {2}}, b{"b", "BF16", {}};
  const auto one = PlanShards({a, b}, 10);
  REQUIRE_OK(one.status());
  REQUIRE(one->size() == 1);
  CHECK((*one)[0].file == "model.safetensors");
  const auto none = PlanShards({}, 10);
  REQUIRE_OK(none.status());
  REQUIRE(none->size() == 1);
  CHECK((*none)[0].file == "model.safetensors");
  const auto two = PlanShards({b, a}, 9);
  REQUIRE_OK(two.status());
  REQUIRE(two->size() == 2);
  CHECK((*two)[0].file == "model-00001-of-00002.safetensors");
  CHECK((*two)[1].file == "model-00002-of-00002.safetensors");
  const auto index = ParseWeightIndex(FormatWeightIndex(*two));
  REQUIRE_OK(index.status());
  CHECK(index->total_size == 10);
  CHECK(index->file_of ==
        std::map<std::string, std::string>{{"a", (*two)[1].file}, {"b", (*two)[0].file}});
}

TEST_CASE("WeightShards: lists that no files can hold are refused by name") {
  const auto refused = [](const std::vector<SafetensorsTensor>& tensors, int64_t limit,
                          const std::string& why) {
    const absl::Status status = PlanShards(tensors, limit).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), ContainsSubstring(why));
  };
  refused({}, 0, "at most 0 bytes");
  // In different shards, where no file of its own would show it.
  refused({{"a", "U8", {8}}, {"b", "U8", {8}}, {"a", "U8", {8}}}, 8, "tensor 'a' is listed twice");
  refused({{"a", "u8", {8}}}, 8, "tensor 'a': unknown dtype 'u8'");
  std::vector<SafetensorsTensor> many;
  for (int i = 0; i < 16; ++i) many.push_back({absl::StrCat(i), "U8", {int64_t{1} << 59}});
  refused(many, 8, "tensor '15': the sum of the sizes overflows 64 bits");
}

}  // namespace
}  // namespace zero
