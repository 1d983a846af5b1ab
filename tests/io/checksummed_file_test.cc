#include "io/checksummed_file.h"

#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "io/crc32c.h"
#include "tests/catch.h"
#include "tests/io/replaced_files.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/watched_files.h"

namespace zero {
namespace {

constexpr int64_t kBlock = kChecksumBlock;

std::string RandomBytes(int64_t count) {
  std::mt19937 random(3);
  std::string bytes(static_cast<size_t>(count), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

absl::Span<const char> Bytes(const std::string& text) { return {text.data(), text.size()}; }

// Writes `bytes` in pieces that lie across blocks.
std::vector<uint32_t> Write(const std::string& path, const std::string& bytes) {
  auto writer = ChecksummedWriter::Create(path);
  REQUIRE_OK(writer.status());
  absl::Span<const char> left = Bytes(bytes);
  for (size_t piece = 1; !left.empty(); piece = piece * 3 + 1) {
    CHECK_OK(writer->Append(left.subspan(0, piece)));
    left.remove_prefix(std::min(piece, left.size()));
  }
  CHECK(writer->bytes() == static_cast<int64_t>(bytes.size()));
  const auto checksums = writer->Finish();
  REQUIRE_OK(checksums.status());
  return *checksums;
}

TEST_CASE("ChecksummedFile: each block has its own checksum and the last may be short",
          "[thread]") {
  TemporaryFolder folder;
  for (int64_t size : {int64_t{0}, int64_t{1}, kBlock - 1, kBlock, kBlock + 1, 3 * kBlock + 5}) {
    CAPTURE(size);
    const std::string bytes = RandomBytes(size);
    const std::string path = folder.File(absl::StrCat(size));
    std::vector<uint32_t> wanted;
    for (int64_t at = 0; at < size; at += kBlock) {
      wanted.push_back(Crc32c(0, Bytes(bytes).subspan(at, kBlock)));
    }
    CHECK(Write(path, bytes) == wanted);
    CHECK(ReadFile(path) == bytes);
    auto reader = ChecksummedReader::Open(path, size, wanted);
    REQUIRE_OK(reader.status());
    CHECK_OK(reader->Verify({}));
  }
}

// Files() of a file system that bypasses its cache in part, or not at all.
class CachingFiles : public ReplacedFiles {
 public:
  explicit CachingFiles(bool refuses) : refuses_(refuses) {}

  int Bypass(int, bool on) override {
    if (on && refuses_) return errno = EINVAL, -1;
    bypasses_ = on;
    return 0;
  }
  ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
    ++writes;
    if (bypasses_) return errno = EINVAL, -1;
    return FileCalls::Pwrite(descriptor, bytes, count, offset);
  }
  std::atomic<int> writes{0};

 private:
  const bool refuses_;
  std::atomic<bool> bypasses_{false};
};

TEST_CASE("ChecksummedFile: what cannot go past the cache goes through it") {
  TemporaryFolder folder;
  const std::string bytes = RandomBytes(3 * kBlock + 5);
  for (const bool refuses : {true, false}) {
    CAPTURE(refuses);
    const std::string path = folder.File(refuses ? "refused" : "later");
    CachingFiles files(refuses);
    Write(path, bytes);
    CHECK(ReadFile(path) == bytes);
    CHECK(files.writes == (refuses ? 4 : 5));
  }
}

TEST_CASE("ChecksummedFile: whole blocks go past the cache and the rest does not") {
  TemporaryFolder folder;
  class Flags : public CachingFiles {
   public:
    Flags() : CachingFiles(false) {}
    int Bypass(int descriptor, bool on) override {
      supported = FileCalls::Bypass(descriptor, on) == 0;
      return supported ? 0 : -1;
    }
    ssize_t Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) override {
      const bool direct = (fcntl(descriptor, F_GETFL) & O_DIRECT) != 0;
      if (direct != (supported && count == static_cast<size_t>(kBlock))) ++wrong;
      return FileCalls::Pwrite(descriptor, bytes, count, offset);
    }
    std::atomic<bool> supported{false};
    std::atomic<int> wrong{0};
  } files;
  const std::string bytes = RandomBytes(3 * kBlock + 5);
  Write(folder.File("f"), bytes);
  CHECK(files.wrong == 0);
  CHECK(ReadFile(folder.File("f")) == bytes);
}

TEST_CASE("ChecksummedFile: any range reads back, over borders of blocks too", "[thread]") {
  TemporaryFolder folder;
  const std::string bytes = RandomBytes(3 * kBlock + 1000);
  const auto checksums = Write(folder.File("f"), bytes);
  auto reader =
      ChecksummedReader::Open(folder.File("f"), static_cast<int64_t>(bytes.size()), checksums);
  REQUIRE_OK(reader.status());
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 10},
                                                           {5, 10},
                                                           {kBlock - 3, 6},
                                                           {0, kBlock},
                                                           {7, 3 * kBlock},
                                                           {3 * kBlock, 10},
                                                           {3 * kBlock, 1000},
                                                           {0, 3 * kBlock + 1000},
                                                           {kBlock, kBlock},
                                                           {2 * kBlock + 1, kBlock + 5},
                                                           {3 * kBlock + 1000, 0},
                                                           {1, 0}};
  for (const auto& [first, count] : ranges) {
    CAPTURE(first, count);
    std::string read(static_cast<size_t>(count), '?');
    CHECK_OK(reader->ReadAt(first, absl::MakeSpan(read.data(), read.size())));
    CHECK((read == bytes.substr(first, count)));
  }
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 1}, {3 * kBlock + 1000, 1}, {3 * kBlock + 1001, 0}, {0, 3 * kBlock + 1001}}) {
    CAPTURE(first, count);
    std::string read(static_cast<size_t>(count), '?');
    CHECK(reader->ReadAt(first, absl::MakeSpan(read.data(), read.size())).code() ==
          absl::StatusCode::kOutOfRange);
  }
}

TEST_CASE("ChecksummedFile: reads that touch a damaged block are refused and others are not",
          "[thread]") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  std::string bytes = RandomBytes(3 * kBlock + 9);
  const auto checksums = Write(path, bytes);
  bytes[kBlock + 17] ^= 0x10;
  WriteFile(path, bytes);
  auto reader = ChecksummedReader::Open(path, static_cast<int64_t>(bytes.size()), checksums);
  REQUIRE_OK(reader.status());
  std::string read(static_cast<size_t>(2 * kBlock), '?');
  const auto status = [&](int64_t first, int64_t count) {
    return reader->ReadAt(first, absl::MakeSpan(read.data(), static_cast<size_t>(count)));
  };
  CHECK_OK(status(0, kBlock));
  CHECK_OK(status(2 * kBlock, kBlock + 9));
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {kBlock, kBlock}, {kBlock + 100, 1}, {kBlock - 1, 2}, {0, 2 * kBlock}}) {
    CAPTURE(first, count);
    const absl::Status damaged = status(first, count);
    CHECK(damaged.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(damaged.message()),
               ContainsSubstring(path + ": the 1048576 bytes from byte 1048576 on are damaged"));
  }
  CHECK_OK(status(2 * kBlock, 1));
  int told = 0;
  CHECK(reader->Verify([&](int64_t, int64_t) { ++told; }).code() == absl::StatusCode::kDataLoss);
  CHECK(told == 1);
}

TEST_CASE("ChecksummedFile: Verify tells how far it is and sees what has changed since") {
  TemporaryFolder folder;
  std::string bytes = RandomBytes(kBlock + 5);
  const auto checksums = Write(folder.File("f"), bytes);
  auto reader = ChecksummedReader::Open(folder.File("f"), kBlock + 5, checksums);
  REQUIRE_OK(reader.status());
  std::vector<std::pair<int64_t, int64_t>> told;
  CHECK_OK(reader->Verify([&](int64_t done, int64_t total) { told.emplace_back(done, total); }));
  CHECK(told ==
        std::vector<std::pair<int64_t, int64_t>>{{kBlock, kBlock + 5}, {kBlock + 5, kBlock + 5}});
  char kept = 0;
  CHECK_OK(reader->ReadAt(4, absl::MakeSpan(&kept, 1)));
  bytes[4] ^= 1;
  WriteFile(folder.File("f"), bytes);
  CHECK_OK(reader->ReadAt(4, absl::MakeSpan(&kept, 1)));
  CHECK(reader->Verify({}).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("ChecksummedFile: a file of another size is refused with both sizes") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  const auto checksums = Write(path, "12345");
  for (int64_t size : {4, 6}) {
    const absl::Status status = ChecksummedReader::Open(path, size, checksums).status();
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring(absl::StrCat(path, ": has 5 bytes, not ", size)));
  }
  CHECK(ChecksummedReader::Open(path, 5, {}).status().code() == absl::StatusCode::kDataLoss);
  CHECK(ChecksummedReader::Open(path, 5, {1, 2}).status().code() == absl::StatusCode::kDataLoss);
  CHECK(ChecksummedReader::Open(folder.File("no"), 5, {1}).status().code() ==
        absl::StatusCode::kNotFound);
}

TEST_CASE("ChecksummedFile: a file cut short after Open is data loss and no fault") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  const auto checksums = Write(path, RandomBytes(2 * kBlock));
  auto reader = ChecksummedReader::Open(path, 2 * kBlock, checksums);
  REQUIRE_OK(reader.status());
  std::filesystem::resize_file(path, kBlock + 10);
  char byte = 0;
  CHECK_OK(reader->ReadAt(3, absl::MakeSpan(&byte, 1)));
  const absl::Status status = reader->ReadAt(kBlock, absl::MakeSpan(&byte, 1));
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("the file ends at byte 1048586"));
}

TEST_CASE("ChecksummedFile: the first error of writing stays and fsync comes before Finish") {
  TemporaryFolder folder;
  WatchedFiles files;
  {
    auto writer = ChecksummedWriter::Create(folder.File("whole"));
    REQUIRE_OK(writer.status());
    CHECK_OK(writer->Append(Bytes("123")));
    CHECK_OK(writer->Finish().status());
    CHECK(files.Calls() == std::vector<std::string>{"create whole", "write whole", "fsync whole"});
  }
  auto writer = ChecksummedWriter::Create(folder.File("f"));
  REQUIRE_OK(writer.status());
  files.Fail("write", 2, EDQUOT);
  const std::string bytes = RandomBytes(16 * kBlock);
  const absl::Status status = writer->Append(Bytes(bytes));
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(
      std::string(status.message()),
      ContainsSubstring(folder.File("f") + ": writing 1048576 bytes at byte 1048576: Disk quota"));
  CHECK(writer->Append(Bytes("x")) == status);
  CHECK(writer->Finish().status() == status);

  auto last = ChecksummedWriter::Create(folder.File("last"));
  REQUIRE_OK(last.status());
  files.Fail("write", 2, ENOSPC);
  // It may have failed by then, or not yet.
  last->Append(Bytes(bytes).subspan(0, 2 * kBlock)).IgnoreError();
  const absl::Status full = last->Finish().status();
  CHECK(full.code() == absl::StatusCode::kResourceExhausted);
  CHECK(last->Finish().status() == full);

  auto synced = ChecksummedWriter::Create(folder.File("g"));
  REQUIRE_OK(synced.status());
  files.Fail("fsync", 1, EIO);
  CHECK(synced->Finish().status().code() == absl::StatusCode::kDataLoss);
  CHECK(ChecksummedWriter::Create(folder.File("g")).status().code() ==
        absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace zero
