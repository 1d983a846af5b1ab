#include "examples/llama/tokens.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/catch.h"

namespace zero::llama {
namespace {

// A file that goes at the end of the case.
class TextFile {
 public:
  explicit TextFile(const std::string& text) {
    static int count = 0;
    path_ = (std::filesystem::temp_directory_path() /
             ("llama_tokens_" + std::to_string(getpid()) + "_" + std::to_string(count++)))
                .string();
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string CountingText(size_t n) {
  std::string text(n, 0);
  for (size_t i = 0; i < n; ++i) text[i] = static_cast<char>(i + 1);
  return text;
}

TEST_CASE("Permute: each epoch visits every index once", "[examples][llama]") {
  const int64_t n = GENERATE(1, 2, 3, 4, 5, 16, 17, 1000);
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < n; ++i) {
    first.push_back(Permute(7, 0, n, i));
    second.push_back(Permute(7, 1, n, i));
  }
  for (const auto& order : {first, second}) {
    const std::set<int64_t> seen(order.begin(), order.end());
    CHECK(static_cast<int64_t>(seen.size()) == n);
    CHECK(*seen.begin() == 0);
    CHECK(*seen.rbegin() == n - 1);
  }
  if (n < 100) return;
  CHECK(first != second);
  int64_t in_place = 0;
  for (int64_t i = 0; i < n; ++i) in_place += first[i] == i;
  CHECK(in_place < 10);
}

TEST_CASE("TokenDataset: sample i is bytes i T to i T + T, targets one further on",
          "[examples][llama]") {
  const TextFile file(CountingText(30));
  const auto data =
      TokenDataset::Open(file.path(), {.sequence_length = 7, .order = SampleOrder::kFile});
  REQUIRE_OK(data.status());
  CHECK(data->samples() == 4);
  const auto batch = data->FillBatch(2, 0, {.micro_batch = 2});
  REQUIRE_OK(batch.status());
  CHECK(batch->tokens ==
        std::vector<int32_t>{15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28});
  CHECK(batch->targets ==
        std::vector<int32_t>{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29});
  CHECK(batch->valid_tokens == 14);
}

TEST_CASE("TokenDataset: bytes above 127 are tokens above 127", "[examples][llama]") {
  const TextFile file("\xFF\x80\x7F");
  const auto data = TokenDataset::Open(file.path(), {.sequence_length = 2});
  REQUIRE_OK(data.status());
  const auto batch = data->FillBatch(0, 0, {});
  CHECK(batch->tokens == std::vector<int32_t>{255, 128});
}

TEST_CASE("TokenDataset: the samples of a step do not depend on how they are dealt out",
          "[examples][llama]") {
  const auto order = GENERATE(SampleOrder::kShuffled, SampleOrder::kFile);
  const TextFile file(CountingText(90));
  const auto data =
      TokenDataset::Open(file.path(), {.sequence_length = 4, .order = order, .seed = 3});
  REQUIRE_OK(data.status());
  // A global batch of 8, in three ways; step 4 goes past the end of an epoch of 22 samples.
  for (int64_t step = 0; step < 5; ++step) {
    std::vector<std::vector<int32_t>> rows_of_first;
    for (const auto& [ranks, rows] : {std::pair<int64_t, int64_t>{1, 8}, {2, 2}, {4, 1}, {4, 2}}) {
      const int64_t micros = 8 / (ranks * rows);
      std::vector<std::vector<int32_t>> seen;
      for (int64_t micro = 0; micro < micros; ++micro) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const auto batch = data->FillBatch(8 * step, micro, {ranks, rank, rows, micros});
          REQUIRE_OK(batch.status());
          for (int64_t row = 0; row < rows; ++row) {
            seen.emplace_back(batch->tokens.begin() + row * 4, batch->tokens.begin() + row * 4 + 4);
          }
        }
      }
      if (rows_of_first.empty()) rows_of_first = seen;
      // Dealt in this order, the rows are the same and in the same places.
      CHECK(seen == rows_of_first);
    }
  }
}

TEST_CASE("TokenDataset: a shuffled epoch takes each sample once, and differs from the next",
          "[examples][llama]") {
  const TextFile file(CountingText(101));
  const auto data = TokenDataset::Open(file.path(), {.sequence_length = 1, .seed = 3});
  REQUIRE_OK(data.status());
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < 100; ++i) {
    first.push_back(data->SampleAt(i));
    second.push_back(data->SampleAt(100 + i));
  }
  CHECK(std::set<int64_t>(first.begin(), first.end()).size() == 100);
  CHECK(first != second);
}

TEST_CASE("TokenDataset: what cannot be read is named with its sizes",
          "[examples][llama][errors]") {
  const auto message = [](const std::string& path, int64_t length) {
    const auto data = TokenDataset::Open(path, {.sequence_length = length});
    CHECK(data.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(data.status().message()), ContainsSubstring(path));
    return std::string(data.status().message());
  };
  const TextFile empty(""), small("12345678");
  CHECK_THAT(message("/no/such/text", 8), ContainsSubstring("no such file"));
  CHECK_THAT(message(std::filesystem::temp_directory_path().string(), 8),
             ContainsSubstring("is a folder"));
  CHECK_THAT(message(empty.path(), 8), ContainsSubstring("is empty"));
  CHECK_THAT(message(small.path(), 8), ContainsSubstring("has 8 bytes"));
  CHECK_THAT(message(small.path(), 8), ContainsSubstring("needs 9"));
  CHECK_THAT(message(small.path(), 0), ContainsSubstring("it is 0"));
  CHECK(TokenDataset::Open(small.path(), {.sequence_length = 7}).ok());
}

TEST_CASE("TokenDataset: a rank or a micro-batch that does not exist is refused",
          "[examples][llama][errors]") {
  const TextFile file(CountingText(30));
  const auto data = TokenDataset::Open(file.path(), {.sequence_length = 7});
  CHECK(data->FillBatch(0, 1, {}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(data->FillBatch(0, 0, {.ranks = 2, .rank = 2}).status().message()),
             ContainsSubstring("rank 2 of 2"));
}

}  // namespace
}  // namespace zero::llama
