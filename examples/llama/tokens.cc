#include "examples/llama/tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "device/status.h"

namespace zero::llama {
namespace {

// SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// llm.c's header: magic number, version, tokens, and zeros up to kHeaderBytes.
constexpr int64_t kHeaderBytes = 1024;
constexpr int32_t kMagic16 = 20240520, kMagic32 = 20240801;
// Other files of llm.c, in which somebody may take them for tokens.
constexpr int32_t kMagicModel = 20240326, kMagicEvaluation = 20240522;

constexpr int64_t kScanBytes = 1 << 20;  // a multiple of any token and of a word of the hash

int32_t Word(absl::Span<const char> bytes, size_t index) {
  int32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

struct NamedFormat {
  TokenFormat format;
  const char* name;
};
constexpr NamedFormat kFormats[] = {{TokenFormat::kAuto, "auto"},
                                    {TokenFormat::kText, "text"},
                                    {TokenFormat::kLlmC, "llmc"},
                                    {TokenFormat::kUint16, "uint16"},
                                    {TokenFormat::kUint32, "uint32"}};

}  // namespace

int64_t Permute(uint64_t seed, int64_t epoch, int64_t n, int64_t index) {
  constexpr int kRounds = 6;
  const auto largest = static_cast<uint64_t>(n > 1 ? n - 1 : 1);
  const int half = (static_cast<int>(std::bit_width(largest)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t key = Mix(seed ^ Mix(static_cast<uint64_t>(epoch)));
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (Mix(key + Mix(right) + static_cast<uint64_t>(round)) & mask);
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(value);
}

const char* Name(TokenFormat format) {
  const auto* const found =
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [&](const NamedFormat& named) { return named.format == format; });
  return found->name;
}

absl::StatusOr<TokenFormat> ParseTokenFormat(const std::string& name) {
  for (const NamedFormat& named : kFormats) {
    if (name == named.name) return named.format;
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no format '", name, "' of tokens"));
}

absl::StatusOr<TokenDataset> TokenDataset::Open(const std::string& path, const Options& options) {
  static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");
  const auto wrong = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", why...));
  };
  if (options.sequence_length < 1) {
    return wrong("the sequence length must be at least 1; it is ", options.sequence_length);
  }
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return wrong("no such file");
  if (std::filesystem::is_directory(status)) return wrong("is a folder, not a file");
  absl::StatusOr<PosixFile> file = PosixFile::OpenToRead(path);
  if (!file.ok()) return absl::InvalidArgumentError(file.status().message());
  TokenDataset data(*std::move(file), options);
  ZERO_RETURN_IF_ERROR(data.FindFormat());
  ZERO_RETURN_IF_ERROR(data.CheckSizes());
  ZERO_RETURN_IF_ERROR(data.Scan());
  return data;
}

absl::Status TokenDataset::Wrong(const std::string& why) const {
  return absl::InvalidArgumentError(absl::StrCat("'", file_.path(), "': ", why));
}

absl::Status TokenDataset::FindFormat() {
  if (file_.size() == 0) return Wrong("is empty");
  std::vector<char> start(static_cast<size_t>(std::min(file_.size(), kScanBytes)));
  ZERO_RETURN_IF_ERROR(file_.ReadAt(0, absl::MakeSpan(start)));
  format_ = options_.format;
  if (format_ == TokenFormat::kAuto) {
    const int32_t magic = start.size() < sizeof(int32_t) ? 0 : Word(start, 0);
    const bool known =
        magic == kMagic16 || magic == kMagic32 || magic == kMagicModel || magic == kMagicEvaluation;
    format_ = known ? TokenFormat::kLlmC : TokenFormat::kText;
    if (!known && std::find(start.begin(), start.end(), '\0') != start.end()) {
      return Wrong(
          "holds bytes that are zero, as no text does; if it holds ids of tokens, say uint16 or "
          "uint32, and if its bytes are the tokens, text");
    }
  }
  switch (format_) {
    case TokenFormat::kLlmC:
      return ReadHeader(start);
    case TokenFormat::kUint16:
      width_ = sizeof(uint16_t);
      break;
    case TokenFormat::kUint32:
      width_ = sizeof(uint32_t);
      break;
    default:
      break;
  }
  tokens_ = file_.size() / width_;
  if (file_.size() % width_ != 0) {
    return Wrong(absl::StrCat("has ", file_.size(), " bytes, which are no whole number of ids of ",
                              width_, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status TokenDataset::ReadHeader(absl::Span<const char> header) {
  const int32_t magic = header.size() < sizeof(int32_t) ? 0 : Word(header, 0);
  const std::string found = absl::StrCat("begins with ", magic, ", ");
  if (magic == kMagicModel) return Wrong(found + "as a model of llm.c does, not a file of tokens");
  if (magic == kMagicEvaluation) {
    return Wrong(found + "as a file of questions of llm.c does, not a file of tokens");
  }
  if (magic != kMagic16 && magic != kMagic32) {
    return Wrong(absl::StrCat("is no file of tokens of llm.c, which begins with ", kMagic16, " or ",
                              kMagic32));
  }
  if (static_cast<int64_t>(header.size()) < kHeaderBytes) {
    return Wrong(
        absl::StrCat("has ", file_.size(), " bytes; the header of llm.c alone has ", kHeaderBytes));
  }
  const int32_t version = magic == kMagic16 ? 1 : 7;
  if (Word(header, 1) != version) {
    return Wrong(absl::StrCat("its header is of version ", Word(header, 1), "; with ", magic,
                              " it must be ", version));
  }
  start_ = kHeaderBytes;
  width_ = magic == kMagic16 ? 2 : 4;
  tokens_ = Word(header, 2);
  const int64_t bytes = start_ + tokens_ * width_;
  if (tokens_ >= 0 && bytes == file_.size()) return absl::OkStatus();
  return Wrong(absl::StrCat("its header says ", tokens_, " tokens",
                            tokens_ < 0 ? "" : absl::StrCat(", so ", bytes, " bytes"),
                            ", but it has ", file_.size(), " bytes"));
}

absl::Status TokenDataset::CheckSizes() {
  if (tokens_ == 0) return Wrong("holds no tokens");
  const std::string limit = absl::StrCat("the model's vocab_size is ", options_.vocabulary);
  if (format_ == TokenFormat::kText && options_.vocabulary < kByteVocabulary) {
    return Wrong(absl::StrCat("bytes as tokens need a vocabulary of at least ", kByteVocabulary,
                              "; ", limit));
  }
  if (width_ == 2 && options_.vocabulary > 65536) {
    return Wrong(absl::StrCat("its ids have 16 bits, and ", limit,
                              ": those from 65536 on cannot be right in it; write ids of 32 bits"));
  }
  samples_ = (tokens_ - 1) / options_.sequence_length;
  if (samples_ > 0) return absl::OkStatus();
  return Wrong(absl::StrCat("has ", tokens_, format_ == TokenFormat::kText ? " bytes" : " tokens",
                            "; one sample of ", options_.sequence_length,
                            " tokens and their targets needs ", options_.sequence_length + 1));
}

absl::Status TokenDataset::Scan() {
  hash_ = Mix(static_cast<uint64_t>(file_.size()));
  std::vector<char> block(static_cast<size_t>(std::min(file_.size(), kScanBytes)));
  std::vector<int32_t> tokens;
  // Of every second id, from the first and from the second one on, together: their bits.
  std::array<int32_t, 2> bits = {0, 0};
  for (int64_t at = 0; at < file_.size(); at += kScanBytes) {
    const int64_t bytes = std::min(kScanBytes, file_.size() - at);
    const absl::Span<char> read(block.data(), static_cast<size_t>(bytes));
    ZERO_RETURN_IF_ERROR(file_.ReadAt(at, read));
    for (size_t i = 0; i < read.size(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, read.data() + i, std::min(sizeof(word), read.size() - i));
      hash_ = Mix(hash_ ^ word);
    }
    if (format_ == TokenFormat::kText) continue;
    const int64_t header = std::max<int64_t>(start_ - at, 0);
    tokens.clear();
    ZERO_RETURN_IF_ERROR(
        Decode(read.subspan(static_cast<size_t>(header)), (at + header - start_) / width_, tokens));
    // A block of bare ids begins with one of even number.
    for (size_t i = 0; i < tokens.size(); ++i) bits[i % 2] |= tokens[i];
  }
  if (format_ == TokenFormat::kUint16 && tokens_ % 2 == 0 && bits[0] != 0 && bits[1] == 0) {
    return Wrong("every second id of 16 bits is 0, as if it held ids of 32 bits: say uint32");
  }
  return absl::OkStatus();
}

absl::Status TokenDataset::Decode(absl::Span<const char> bytes, int64_t first,
                                  std::vector<int32_t>& tokens) const {
  const auto width = static_cast<size_t>(width_);
  for (size_t at = 0; at < bytes.size(); at += width) {
    uint32_t id = 0;
    std::memcpy(&id, bytes.data() + at, width);
    if (int64_t{id} >= options_.vocabulary) {
      return Wrong(absl::StrCat("token ", first + static_cast<int64_t>(at / width), " is ", id,
                                id == 65535 && width_ == 2 ? " (-1 in 16 bits)"
                                : id == UINT32_MAX         ? " (-1 in 32 bits)"
                                                           : "",
                                "; the model's vocab_size is ", options_.vocabulary));
    }
    tokens.push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

std::string TokenDataset::Unit() const {
  return format_ == TokenFormat::kText ? "bytes" : absl::StrCat("ids of ", 8 * width_, " bits");
}

std::string TokenDataset::Summary() const { return absl::StrCat(tokens_, " ", Unit()); }

int64_t TokenDataset::SampleAt(int64_t position) const {
  const int64_t index = position % samples_;
  if (options_.order == SampleOrder::kFile) return index;
  return Permute(options_.seed, EpochOf(position), samples_, index);
}

absl::StatusOr<Batch> TokenDataset::FillBatch(int64_t position, int64_t micro,
                                              const Dealing& dealing) const {
  const Dealing& d = dealing;
  if (d.ranks < 1 || d.rank < 0 || d.rank >= d.ranks || d.micro_batch < 1 || d.accumulation < 1 ||
      position < 0 || micro < 0 || micro >= d.accumulation) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no such batch: from sample ", position, ", micro-batch ", micro, " of ", d.accumulation,
        ", rank ", d.rank, " of ", d.ranks, ", ", d.micro_batch, " rows"));
  }
  const int64_t length = options_.sequence_length;
  const int64_t first = position + micro * d.ranks * d.micro_batch + d.rank * d.micro_batch;
  Batch batch;
  std::vector<char> bytes(static_cast<size_t>((length + 1) * width_));
  std::vector<int32_t> row;
  for (int64_t r = 0; r < d.micro_batch; ++r) {
    const int64_t token = SampleAt(first + r) * length;
    ZERO_RETURN_IF_ERROR(file_.ReadAt(start_ + token * width_, absl::MakeSpan(bytes)));
    row.clear();
    const absl::Status decoded = Decode(bytes, token, row);
    // It was not there when the file was opened.
    if (!decoded.ok()) return absl::DataLossError(decoded.message());
    batch.tokens.insert(batch.tokens.end(), row.begin(), row.end() - 1);
    batch.targets.insert(batch.targets.end(), row.begin() + 1, row.end());
  }
  batch.valid_tokens = d.micro_batch * length;
  return batch;
}

}  // namespace zero::llama
