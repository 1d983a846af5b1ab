// Files of tokens: what is read of them, and what is refused.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "examples/llama/tokens.h"
#include "tests/catch.h"
#include "tests/io/temporary_folder.h"

namespace zero::llama {
namespace {

constexpr int32_t kMagic16 = 20240520, kMagic32 = 20240801;

template <class T>
std::string Ids(const std::vector<int64_t>& ids) {
  std::string bytes;
  for (const int64_t id : ids) {
    const auto value = static_cast<T>(id);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

std::vector<int64_t> Counting(int64_t n) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(i);
  return ids;
}

std::string Header(int32_t magic, int32_t version, int32_t tokens) {
  std::string header(1024, '\0');
  for (const auto& [index, word] :
       {std::pair<size_t, int32_t>{0, magic}, {1, version}, {2, tokens}}) {
    std::memcpy(header.data() + 4 * index, &word, sizeof(word));
  }
  return header;
}

// A shard of llm.c with `n` tokens 0, 1, ...
std::string Shard16(int32_t n) { return Header(kMagic16, 1, n) + Ids<uint16_t>(Counting(n)); }
std::string Shard32(int32_t n) { return Header(kMagic32, 7, n) + Ids<uint32_t>(Counting(n)); }

TokenDataset::Options Plain(int64_t length, int64_t vocabulary,
                            TokenFormat format = TokenFormat::kAuto) {
  return {.sequence_length = length,
          .order = SampleOrder::kFile,
          .seed = 0,
          .format = format,
          .vocabulary = vocabulary};
}

TEST_CASE("TokenDataset: shards of llm.c are known by their header, ids of 16 and 32 bits",
          "[examples][llama]") {
  const TemporaryFolder folder;
  const bool wide = GENERATE(false, true);
  WriteFile(folder.File("shard"), wide ? Shard32(40) : Shard16(40));
  const auto data = TokenDataset::Open(folder.File("shard"), Plain(7, 1000));
  REQUIRE_OK(data.status());
  CHECK(data->format() == TokenFormat::kLlmC);
  CHECK(data->Summary() == (wide ? "40 ids of 32 bits" : "40 ids of 16 bits"));
  CHECK(data->samples() == 5);
  const auto batch = data->FillBatch(4, 0, {});
  REQUIRE_OK(batch.status());
  CHECK(batch->tokens == std::vector<int32_t>{28, 29, 30, 31, 32, 33, 34});
  CHECK(batch->targets == std::vector<int32_t>{29, 30, 31, 32, 33, 34, 35});
}

TEST_CASE("TokenDataset: ids without a header are read when their width is said",
          "[examples][llama]") {
  const TemporaryFolder folder;
  WriteFile(folder.File("ids"), Ids<uint32_t>({102399, 5, 65535, 65536, 1}));
  const auto wide = TokenDataset::Open(folder.File("ids"), Plain(4, 102400, TokenFormat::kUint32));
  REQUIRE_OK(wide.status());
  const auto batch = wide->FillBatch(0, 0, {});
  REQUIRE_OK(batch.status());
  CHECK(batch->tokens == std::vector<int32_t>{102399, 5, 65535, 65536});
  CHECK(batch->targets == std::vector<int32_t>{5, 65535, 65536, 1});
  const auto narrow = TokenDataset::Open(folder.File("ids"), Plain(4, 65536, TokenFormat::kUint16));
  REQUIRE_OK(narrow.status());
  CHECK(narrow->tokens() == 10);
  const auto bytes = TokenDataset::Open(folder.File("ids"), Plain(4, 256, TokenFormat::kText));
  REQUIRE_OK(bytes.status());
  CHECK(bytes->tokens() == 20);
}

TEST_CASE("TokenDataset: an id that ends up in another block of the file keeps its number",
          "[examples][llama][errors]") {
  const TemporaryFolder folder;
  // The header is no multiple of the blocks that the file is read in.
  std::vector<int64_t> ids(1'500'000, 3);
  ids[1'400'001] = 70'000;
  WriteFile(folder.File("shard"),
            Header(kMagic32, 7, static_cast<int32_t>(ids.size())) + Ids<uint32_t>(ids));
  const auto data = TokenDataset::Open(folder.File("shard"), Plain(8, 70'000));
  CHECK_THAT(std::string(data.status().message()),
             ContainsSubstring("token 1400001 is 70000; the model's vocab_size is 70000"));
  CHECK_OK(TokenDataset::Open(folder.File("shard"), Plain(8, 70'001)).status());
}

TEST_CASE("TokenDataset: the hash is of the whole file", "[examples][llama]") {
  const TemporaryFolder folder;
  std::vector<int64_t> ids(700'001, 3);
  const auto hash = [&] {
    WriteFile(folder.File("ids"), Ids<uint16_t>(ids));
    const auto data = TokenDataset::Open(folder.File("ids"), Plain(8, 100, TokenFormat::kUint16));
    return data.ok() ? data->hash() : 0;
  };
  const uint64_t first = hash();
  CHECK(first != 0);
  CHECK(hash() == first);
  ids.back() = 4;
  CHECK(hash() != first);
}

TEST_CASE("TokenDataset: a file that changes after it was opened is an error and no token",
          "[examples][llama][errors]") {
  const TemporaryFolder folder;
  const std::string path = folder.File("ids");
  WriteFile(path, Ids<uint16_t>(Counting(40)));
  const auto data = TokenDataset::Open(path, Plain(8, 40, TokenFormat::kUint16));
  REQUIRE_OK(data.status());
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(20)
      .write("\xFF\xFF", 2);
  const auto changed = data->FillBatch(1, 0, {});
  CHECK(absl::IsDataLoss(changed.status()));
  CHECK_THAT(std::string(changed.status().message()),
             ContainsSubstring("token 10 is 65535 (-1 in 16 bits)"));
  CHECK_OK(data->FillBatch(3, 0, {}).status());
  std::filesystem::resize_file(path, 50);
  CHECK(absl::IsDataLoss(data->FillBatch(3, 0, {}).status()));
}

struct Wanted {
  std::string words;  // of the refusal; empty: it loads
  int64_t length = 64;
  int64_t vocabulary = 50257;
  TokenFormat format = TokenFormat::kAuto;
};

void CheckOutcome(const std::string& path, const Wanted& wanted) {
  CAPTURE(path);
  const auto data =
      TokenDataset::Open(path, Plain(wanted.length, wanted.vocabulary, wanted.format));
  INFO(data.status().message());
  if (wanted.words.empty()) {
    REQUIRE_OK(data.status());
    CHECK(data->samples() >= 1);
    CHECK_OK(data->FillBatch(data->samples() - 1, 0, {}).status());
    return;
  }
  CHECK(data.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(data.status().message()), ContainsSubstring(wanted.words));
  CHECK_THAT(std::string(data.status().message()), ContainsSubstring(path));
}

TEST_CASE("TokenDataset: files that are not what they say are refused with the numbers",
          "[examples][llama][errors]") {
  const TemporaryFolder folder;
  int count = 0;
  const auto check = [&](const std::string& bytes, const Wanted& wanted) {
    const std::string path = folder.File("tokens" + std::to_string(count++));
    WriteFile(path, bytes);
    CheckOutcome(path, wanted);
  };
  const auto changed = [](std::string shard, size_t word, int32_t value) {
    std::memcpy(shard.data() + 4 * word, &value, sizeof(value));
    return shard;
  };
  check(Shard16(129), {""});
  check(Shard32(129), {""});
  check(changed(Shard16(129), 0, 20240326), {"begins with 20240326, as a model of llm.c does"});
  check(changed(Shard16(129), 0, 20240522), {"as a file of questions of llm.c does"});
  check(changed(Shard16(129), 1, 2), {"its header is of version 2; with 20240520 it must be 1"});
  check(changed(Shard32(129), 1, 1), {"its header is of version 1; with 20240801 it must be 7"});
  check(changed(Shard16(129), 2, 1000),
        {"its header says 1000 tokens, so 3024 bytes, but it has 1282 bytes"});
  check(changed(Shard16(129), 2, 100),
        {"its header says 100 tokens, so 1224 bytes, but it has 1282 bytes"});
  check(changed(Shard16(129), 2, -1), {"its header says -1 tokens, but it has 1282 bytes"});
  check(Shard16(129) + "x", {"but it has 1283 bytes"});
  check(Shard16(0), {"holds no tokens"});
  check(Shard16(1), {"has 1 tokens; one sample of 64 tokens and their targets needs 65"});
  check(Shard16(64), {"has 64 tokens; one sample of 64 tokens and their targets needs 65"});
  check(Shard16(65), {""});
  check(Shard16(65).substr(0, 1000), {"has 1000 bytes; the header of llm.c alone has 1024"});
  check(Header(kMagic16, 1, 3) + Ids<uint16_t>({1, 65535, 2}),
        {"token 1 is 65535 (-1 in 16 bits); the model's vocab_size is 50257", 2});
  check(Header(kMagic32, 7, 3) + Ids<uint32_t>({1, 2, -1}),
        {"token 2 is 4294967295 (-1 in 32 bits); the model's vocab_size is 50257", 2});
  check(Ids<uint16_t>({1, 32000, 2}),
        {"token 1 is 32000; the model's vocab_size is 32000", 2, 32000, TokenFormat::kUint16});
  check(Shard16(129), {"its ids have 16 bits, and the model's vocab_size is 102400", 64, 102400});
  check(Ids<uint16_t>(Counting(90)), {"holds bytes that are zero, as no text does"});
  check(Ids<uint16_t>(Counting(90)) + "x",
        {"has 181 bytes, which are no whole number of ids of 2", 64, 50257, TokenFormat::kUint16});
  check(Ids<uint32_t>(Counting(90)),
        {"every second id of 16 bits is 0, as if it held ids of 32 bits: say uint32", 64, 50257,
         TokenFormat::kUint16});
  // Zeros, and every second one with something between, are ids like others.
  check(Ids<uint16_t>(std::vector<int64_t>(90)), {"", 64, 50257, TokenFormat::kUint16});
  check(Ids<uint16_t>({1, 0, 2, 0, 3, 4, 5, 0}), {"", 2, 50257, TokenFormat::kUint16});
  check(Ids<uint32_t>(Counting(90)) + "xy",
        {"has 362 bytes, which are no whole number of ids of 4", 64, 50257, TokenFormat::kUint32});
  check("a text that is long enough", {"is no file of tokens", 8, 256, TokenFormat::kLlmC});
  check("abc", {"is no file of tokens", 1, 256, TokenFormat::kLlmC});
  check("", {"is empty", 1, 256, TokenFormat::kUint16});
  check("a text of bytes",
        {"need a vocabulary of at least 256; the model's vocab_size is 100", 4, 100});
  check("a text of bytes", {"", 4, 256});
}

TEST_CASE("Token cases: each file of the folder loads or is refused for the right reason",
          "[examples][llama]") {
  const char* named = std::getenv("ZERO_TOKEN_CASES_DIR");
  const std::filesystem::path folder =
      named != nullptr ? named : ZERO_SOURCE_DIR "/../shared/cases/tokens";
  if (!std::filesystem::is_directory(folder)) {
    WARN("ZERO_TOKEN_CASES_DIR is not given: no files of tokens tried");
    return;
  }
  const std::map<std::string, Wanted> table = {
      {"bad_exact_seq", {"has 64 tokens; one sample of 64 tokens and their targets needs 65"}},
      {"bad_id_65535", {"is 65535 (-1 in 16 bits); the model's vocab_size is 50257"}},
      {"bad_ntok_negative", {"its header says -1 tokens"}},
      {"bad_ntok_too_big", {"1000 tokens, so 3024 bytes, but it has 1282 bytes"}},
      {"bad_ntok_too_small", {"100 tokens, so 1224 bytes, but it has 1282 bytes"}},
      {"bad_odd_byte", {"1283 bytes"}},
      {"bad_old_json_magic", {"as a model of llm.c does"}},
      {"bad_one_token", {"needs 65"}},
      {"bad_zero_tokens", {"holds no tokens"}},
      {"edge_seq_plus_1", {""}},
      {"ok_u32_raw", {"", 64, 102400, TokenFormat::kUint32}}};
  for (const auto& [name, wanted] : table) {
    CheckOutcome((folder / (name + ".bin")).string(), wanted);
  }
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    CHECK(table.count(entry.path().stem().string()) == 1);
    ++found;
  }
  CHECK(found == table.size());
  const auto edge = TokenDataset::Open((folder / "edge_seq_plus_1.bin").string(), Plain(64, 50257));
  REQUIRE_OK(edge.status());
  CHECK(edge->samples() == 1);
}

TEST_CASE("TokenFormat: names are read back", "[examples][llama]") {
  for (const TokenFormat format : {TokenFormat::kAuto, TokenFormat::kText, TokenFormat::kLlmC,
                                   TokenFormat::kUint16, TokenFormat::kUint32}) {
    const auto read = ParseTokenFormat(Name(format));
    REQUIRE_OK(read.status());
    CHECK(*read == format);
  }
  CHECK(absl::IsInvalidArgument(ParseTokenFormat("uint8").status()));
}

}  // namespace
}  // namespace zero::llama
