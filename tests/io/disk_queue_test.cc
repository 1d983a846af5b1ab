#include "io/disk_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

// One way to transfer, on one kind of file.
struct Way {
  std::string name;
  bool io_uring;
  const char* folder;
  int refuses_direct;
};

std::vector<Way> Ways() {
  const std::string disk = std::filesystem::temp_directory_path().string();
  static const std::string kept = disk;
  std::vector<Way> ways;
  for (const bool io_uring : {true, false}) {
    const std::string how = io_uring ? "io_uring" : "threads";
    ways.push_back({how + " and a disk", io_uring, kept.c_str(), 0});
    ways.push_back({how + " and memory", io_uring, "/dev/shm", 0});
    ways.push_back({how + " and no O_DIRECT", io_uring, kept.c_str(), EINVAL});
  }
  return ways;
}

std::unique_ptr<DiskQueue> NewQueue(const Way& way, int64_t block_bytes = 1 << 20) {
  DiskQueue::Options options;
  options.io_uring = way.io_uring;
  options.block_bytes = block_bytes;
  absl::StatusOr<std::unique_ptr<DiskQueue>> queue = DiskQueue::Create(options);
  REQUIRE_OK(queue.status());
  return *std::move(queue);
}

DiskFile NewFile(const TemporaryFolder& folder, int64_t bytes) {
  static int number = 0;
  absl::StatusOr<DiskFile> file =
      DiskFile::Create(folder.File("f" + std::to_string(number++)), bytes);
  REQUIRE_OK(file.status());
  return *std::move(file);
}

// Bytes that differ from their neighbours and from those of other seeds, at an address that is
// `misfit` past a multiple of kDiskAlignment.
class Bytes {
 public:
  Bytes(int64_t size, int seed, int64_t misfit)
      : size_(static_cast<size_t>(size)),
        memory_(
            AllocateAligned((size + misfit) / kDiskAlignment * kDiskAlignment + kDiskAlignment)),
        data_(memory_.get() + misfit) {
    uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
    for (size_t i = 0; i < size_; ++i) {
      state = state * 1664525u + 1013904223u;
      data_[i] = static_cast<char>(state >> 24);
    }
  }
  char* data() const { return data_; }
  int64_t size() const { return static_cast<int64_t>(size_); }
  bool operator==(const Bytes& other) const {
    return size_ == other.size_ && std::memcmp(data_, other.data_, size_) == 0;
  }

 private:
  const size_t size_;
  const AlignedBytes memory_;
  char* const data_;
};

TEST_CASE("DiskQueue: every length and address and block comes back equal") {
  for (const Way& way : Ways()) {
    CAPTURE(way.name);
    TemporaryFolder folder(way.folder);
    FaultyTransfers files;
    files.refuses_direct = way.refuses_direct;
    for (const int64_t block : {262144, 1048576}) {
      const std::unique_ptr<DiskQueue> queue = NewQueue(way, block);
      for (const int64_t bytes : {1, 511, 512, 513, 4095, 4096, 4097, 1048577, 28824000}) {
        for (const int64_t misfit : {0, 4, 64, 512}) {
          CAPTURE(block, bytes, misfit, queue->note());
          // Slow, and like the others.
          if (bytes > 2000000 && misfit != (block == 262144 ? 0 : 4)) continue;
          const DiskFile file = NewFile(folder, bytes);
          const Bytes written(bytes, 1, misfit);
          const Bytes read(bytes, 2, (misfit * 3) % 513);
          REQUIRE_OK(queue->Write(file, 0, written.data(), bytes));
          REQUIRE_OK(queue->Read(file, 0, read.data(), bytes));
          REQUIRE(read == written);
          unlink(file.path().c_str());
        }
      }
    }
  }
}

TEST_CASE("DiskQueue: a write changes its range and no byte beside it") {
  for (const Way& way : Ways()) {
    CAPTURE(way.name);
    TemporaryFolder folder(way.folder);
    FaultyTransfers files;
    files.refuses_direct = way.refuses_direct;
    const std::unique_ptr<DiskQueue> queue = NewQueue(way, 8192);
    const int64_t size = 40001;
    const DiskFile file = NewFile(folder, size);
    Bytes expected(size, 1, 0);
    REQUIRE_OK(queue->Write(file, 0, expected.data(), size));
    const std::vector<std::pair<int64_t, int64_t>> ranges = {
        {0, 1},       {1, 511},      {511, 2},      {512, 512},    {100, 4000}, {4095, 2},
        {4096, 4096}, {4097, 12287}, {8191, 20000}, {39999, 2},    {40000, 1},  {36864, 3137},
        {0, 40001},   {1, 40000},    {0, 40000},    {12288, 8192}, {5000, 0}};
    int seed = 2;
    for (const auto& [offset, bytes] : ranges) {
      CAPTURE(offset, bytes);
      const Bytes change(bytes, seed, seed % 3 * 4);
      ++seed;
      REQUIRE_OK(queue->Write(file, offset, change.data(), bytes));
      std::memcpy(expected.data() + offset, change.data(), static_cast<size_t>(bytes));
      const Bytes all(size, 0, 0);
      REQUIRE_OK(queue->Read(file, 0, all.data(), size));
      REQUIRE(all == expected);
      const Bytes part(bytes, 0, 12);
      REQUIRE_OK(queue->Read(file, offset, part.data(), bytes));
      CHECK(part == change);
    }
  }
}

TEST_CASE("DiskQueue: ranges of one call may share sectors and lie in any order") {
  for (const Way& way : Ways()) {
    CAPTURE(way.name);
    TemporaryFolder folder(way.folder);
    FaultyTransfers files;
    files.refuses_direct = way.refuses_direct;
    const std::unique_ptr<DiskQueue> queue = NewQueue(way, 4096);
    const int64_t size = 30000;
    const DiskFile file = NewFile(folder, size);
    const Bytes written(size, 1, 0);
    const std::vector<int64_t> cuts = {0, 1, 100, 5000, 5001, 8192, 16384, 16385, 30000};
    std::vector<DiskRange> ranges;
    for (size_t i = cuts.size() - 1; i > 0; --i) {
      ranges.push_back({cuts[i - 1], written.data() + cuts[i - 1], cuts[i] - cuts[i - 1]});
    }
    REQUIRE_OK(queue->Write(file, ranges));
    const Bytes read(size, 2, 0);
    for (DiskRange& range : ranges) range.memory = read.data() + range.offset;
    REQUIRE_OK(queue->Read(file, ranges));
    CHECK(read == written);
  }
}

TEST_CASE("DiskQueue: aligned transfers go between file and the caller's memory in its blocks") {
  TemporaryFolder folder;
  for (const bool io_uring : {true, false}) {
    CAPTURE(io_uring);
    const std::unique_ptr<DiskQueue> queue = NewQueue({"", io_uring, "", 0}, 8192);
    const DiskFile file = NewFile(folder, 40960);
    const Bytes bytes(40960, 1, 0);
    REQUIRE_OK(queue->Write(file, 0, bytes.data(), 40960));
    FaultyTransfers files;
    std::multiset<std::pair<off_t, size_t>> seen;
    files.transfer = [&](bool writes, size_t* count, off_t offset) {
      if (!writes) seen.insert({offset, *count});
      return 0;
    };
    REQUIRE_OK(queue->Read(file, 4096, bytes.data(), 36864));
    CHECK(seen == std::multiset<std::pair<off_t, size_t>>{
                      {4096, 8192}, {12288, 8192}, {20480, 8192}, {28672, 8192}, {36864, 4096}});
  }
}

TEST_CASE("DiskQueue: only what is not aligned is copied") {
  for (const Way& way : Ways()) {
    TemporaryFolder folder(way.folder);
    FaultyTransfers files;
    files.refuses_direct = way.refuses_direct;
    const std::unique_ptr<DiskQueue> queue = NewQueue(way, 8192);
    const DiskFile file = NewFile(folder, 100000);
    const Bytes bytes(100000, 1, 0);
    CAPTURE(way.name, file.note());
    REQUIRE_OK(queue->Write(file, 0, bytes.data(), 98304));
    REQUIRE_OK(queue->Read(file, 4096, bytes.data() + 8192, 40960));
    CHECK(queue->copied_bytes() == 0);
    REQUIRE_OK(queue->Read(file, 0, bytes.data(), 8195));
    CHECK(queue->copied_bytes() == (file.direct() ? 3 : 0));
    REQUIRE_OK(queue->Write(file, 4095, bytes.data() + 4095, 4098));
    CHECK(queue->copied_bytes() == (file.direct() ? 3 + 2 : 0));
    REQUIRE_OK(queue->Write(file, 0, bytes.data() + 1, 20480));
    CHECK(queue->copied_bytes() ==
          (file.memory_alignment() > 1 ? 3 + 2 + 20480 : 5 * file.direct()));
  }
}

TEST_CASE("DiskQueue: interrupted and short transfers go on to the last byte") {
  for (const Way& way : Ways()) {
    for (const int64_t misfit : {0, 4}) {
      CAPTURE(way.name, misfit);
      TemporaryFolder folder(way.folder);
      FaultyTransfers files;
      files.refuses_direct = way.refuses_direct;
      const std::unique_ptr<DiskQueue> queue = NewQueue(way, 65536);
      const int64_t size = 300001;
      const DiskFile file = NewFile(folder, size);
      int calls = 0;
      files.transfer = [&](bool, size_t* count, off_t) {
        ++calls;
        if (calls % 5 == 1) return EINTR;
        if (calls % 5 == 2) return EAGAIN;
        // Of a direct file in whole sectors, as the system's are.
        const auto unit = static_cast<size_t>(file.offset_alignment());
        if (calls % 5 == 3) *count = std::max(*count / 2 / unit * unit, unit);
        if (calls % 5 == 4) *count = std::min<size_t>(*count, 4096);
        return 0;
      };
      const Bytes written(size, 1, misfit);
      const Bytes read(size, 2, misfit);
      REQUIRE_OK(queue->Write(file, 0, written.data(), size));
      REQUIRE_OK(queue->Read(file, 0, read.data(), size));
      CHECK(read == written);
      CHECK(calls > 20);
    }
  }
}

TEST_CASE("DiskQueue: a file that ends too soon is an error with offset and wanted and got") {
  for (const Way& way : Ways()) {
    CAPTURE(way.name);
    TemporaryFolder folder(way.folder);
    FaultyTransfers files;
    files.refuses_direct = way.refuses_direct;
    const std::unique_ptr<DiskQueue> queue = NewQueue(way, 8192);
    const DiskFile file = NewFile(folder, 32768);
    const Bytes bytes(32768, 1, 0);
    REQUIRE_OK(queue->Write(file, 0, bytes.data(), 32768));
    for (const int64_t end : {16384, 20480, 20600}) {
      CAPTURE(end);
      REQUIRE(truncate(file.path().c_str(), end) == 0);
      CHECK(queue->Read(file, 0, bytes.data(), 32768).code() == absl::StatusCode::kDataLoss);
      const absl::Status status = queue->Read(file, 16384, bytes.data(), 8192);
      CHECK(status.code() == absl::StatusCode::kDataLoss);
      CHECK_THAT(std::string(status.message()),
                 ContainsSubstring(file.path() + ": reading 8192 bytes at byte 16384: only " +
                                   std::to_string(end - 16384) + " came"));
      REQUIRE(truncate(file.path().c_str(), 32768) == 0);
      CHECK_OK(queue->Read(file, 0, bytes.data(), 32768));
    }
  }
}

TEST_CASE("DiskQueue: errors of a disk name the file and range and the system's words") {
  struct Fault {
    int error;
    absl::StatusCode code;
    const char* text;
  };
  for (const Way& way : Ways()) {
    TemporaryFolder folder(way.folder);
    FaultyTransfers files;
    files.refuses_direct = way.refuses_direct;
    const std::unique_ptr<DiskQueue> queue = NewQueue(way, 8192);
    const DiskFile file = NewFile(folder, 65536);
    const Bytes bytes(65536, 1, 0);
    for (const bool writes : {false, true}) {
      for (const Fault& fault : {Fault{EIO, absl::StatusCode::kDataLoss, "Input/output error"},
                                 Fault{ENOSPC, absl::StatusCode::kResourceExhausted, "No space"},
                                 Fault{EDQUOT, absl::StatusCode::kResourceExhausted, "quota"}}) {
        CAPTURE(way.name, writes, fault.text);
        files.transfer = [&](bool, size_t*, off_t offset) {
          return offset == 24576 ? fault.error : 0;
        };
        const absl::Status status = writes ? queue->Write(file, 0, bytes.data(), 65536)
                                           : queue->Read(file, 0, bytes.data(), 65536);
        CHECK(status.code() == fault.code);
        CHECK_THAT(std::string(status.message()),
                   ContainsSubstring(file.path() + (writes ? ": writing" : ": reading") +
                                     " 8192 bytes at byte 24576") &&
                       ContainsSubstring(fault.text));
        CHECK((std::string(status.message()).find(" are free: ") != std::string::npos) ==
              (fault.error != EIO));
        files.transfer = nullptr;
        CHECK_OK(queue->Write(file, 0, bytes.data(), 65536));
      }
    }
  }
}

TEST_CASE("DiskQueue: an error that goes on is told and not tried for ever") {
  TemporaryFolder folder;
  for (const bool io_uring : {true, false}) {
    FaultyTransfers files;
    const std::unique_ptr<DiskQueue> queue = NewQueue({"", io_uring, "", 0}, 8192);
    const DiskFile file = NewFile(folder, 8192);
    const Bytes bytes(8192, 1, 0);
    files.transfer = [](bool, size_t*, off_t) { return EAGAIN; };
    const absl::Status status = queue->Read(file, 0, bytes.data(), 8192);
    CHECK_THAT(std::string(status.message()), ContainsSubstring("temporarily unavailable"));
  }
}

TEST_CASE("DiskQueue: ranges outside of the file and options out of range are refused") {
  TemporaryFolder folder;
  const DiskFile file = NewFile(folder, 5000);
  const std::unique_ptr<DiskQueue> queue = NewQueue({"", false, "", 0});
  const Bytes bytes(5001, 1, 0);
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const auto& [offset, count] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 5001}, {4999, 2}, {5000, 1}, {-1, 1}, {0, -1}, {1, most}, {most, 1}}) {
    CAPTURE(offset, count);
    const absl::Status status = queue->Read(file, offset, bytes.data(), count);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring(file.path()) && ContainsSubstring("a file of 5000"));
  }
  for (const auto& [block, depth, threads] : std::vector<std::tuple<int64_t, int, int>>{
           {0, 1, 1}, {4095, 1, 1}, {6000, 1, 1}, {4096, 0, 1}, {4096, 5000, 1}, {4096, 1, 0}}) {
    DiskQueue::Options options;
    options.block_bytes = block;
    options.depth = depth;
    options.threads = threads;
    CHECK(DiskQueue::Create(options).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("DiskQueue: two queues read and write one file at once", "[thread]") {
  for (const Way& way : Ways()) {
    CAPTURE(way.name);
    TemporaryFolder folder(way.folder);
    FaultyTransfers files;
    files.refuses_direct = way.refuses_direct;
    const int64_t half = 1 << 20;
    const DiskFile file = NewFile(folder, 2 * half);
    const Bytes first(half, 1, 0);
    const Bytes second(half, 2, 0);
    const std::unique_ptr<DiskQueue> reader = NewQueue(way, 65536);
    const std::unique_ptr<DiskQueue> writer = NewQueue(way, 65536);
    REQUIRE_OK(reader->Write(file, 0, first.data(), half));
    absl::Status written;
    std::thread other([&] {
      for (int i = 0; i < 5 && written.ok(); ++i) {
        written = writer->Write(file, half, second.data(), half);
      }
    });
    absl::Status status;
    bool equal = true;
    for (int i = 0; i < 5 && status.ok(); ++i) {
      const Bytes read(half, 3, 0);
      status = reader->Read(file, 0, read.data(), half);
      equal = equal && read == first;
    }
    other.join();
    CHECK_OK(written);
    CHECK_OK(status);
    CHECK(equal);
  }
}

}  // namespace
}  // namespace zero
