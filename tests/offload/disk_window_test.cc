#include "offload/disk_window.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/aligned_bytes.h"
#include "tests/catch.h"
#include "tests/io/faulty_transfers.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

constexpr int64_t kFrame = 3 << 18;  // of three requests

// Two runs of chunks, of which every second one is one's own, in a file; the last ones are short.
struct Window {
  TemporaryFolder folder;
  std::vector<DiskChunk> chunks;
  AlignedBytes memory = AllocateAligned(DiskWindow::kFrames * kFrame);
  std::optional<DiskFile> file;
  std::unique_ptr<DiskWindow> window;
  std::vector<char> content;  // that the file should have

  explicit Window(int pairs = 10) {
    int64_t end = 0;
    for (int i = 0; i < 2 * pairs; ++i) {
      const int64_t bytes = i < 2 * pairs - 2 ? kFrame : 70'001;
      chunks.push_back({end, bytes, i < 2 * pairs - 2 ? i + 2 : -1});
      end += (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
    }
    absl::StatusOr<DiskFile> made = DiskFile::Create(folder.File("file"), end);
    REQUIRE_OK(made.status());
    file = *std::move(made);
    absl::StatusOr<std::unique_ptr<DiskWindow>> opened =
        DiskWindow::Create(&*file, chunks, memory.get(), kFrame);
    REQUIRE_OK(opened.status());
    window = *std::move(opened);
    content.assign(static_cast<size_t>(end), 0);
  }

  // Elements of the file that are not padding, of one run or the other.
  template <class Visit>
  void Run(int first, int64_t step, const Visit& visit) const {
    for (int c = first; c >= 0; c = chunks[static_cast<size_t>(c)].next) {
      const DiskChunk& chunk = chunks[static_cast<size_t>(c)];
      for (int64_t done = 0; done < chunk.bytes; done += step) {
        visit(chunk.offset + done, std::min(step, chunk.bytes - done));
      }
    }
  }

  char* Fill(int64_t offset, int64_t bytes, int seed) {
    char* const at = content.data() + offset;
    for (int64_t i = 0; i < bytes; ++i) at[i] = static_cast<char>((offset + i) * 31 + seed >> 3);
    return at;
  }
  void Write(int64_t offset, int64_t bytes, int seed = 1) {
    REQUIRE_OK(window->Write(offset, Fill(offset, bytes, seed), bytes));
  }
  // Both runs, in turn.
  void WriteAll(int64_t step, int seed = 1) {
    std::vector<std::pair<int64_t, int64_t>> runs[2];
    for (int r = 0; r < 2; ++r) {
      Run(r, step, [&](int64_t offset, int64_t bytes) { runs[r].push_back({offset, bytes}); });
    }
    for (size_t i = 0; i < runs[0].size(); ++i) {
      for (const auto& run : runs) Write(run[i].first, run[i].second, seed);
    }
  }
  bool Reads(int64_t offset, int64_t bytes) {
    std::vector<char> read(static_cast<size_t>(bytes));
    REQUIRE_OK(window->Read(offset, read.data(), bytes));
    return std::equal(read.begin(), read.end(), content.begin() + offset);
  }
  std::vector<char> InFile() const {
    std::vector<char> bytes(content.size());
    const auto queue = DiskQueue::Create();
    REQUIRE_OK(queue.status());
    REQUIRE_OK((*queue)->Read(*file, 0, bytes.data(), static_cast<int64_t>(bytes.size())));
    return bytes;
  }
};

TEST_CASE("DiskWindow: what is written a little at a time is in the file and is read back",
          "[thread]") {
  Window w;
  const int64_t step = GENERATE(1 << 20, 100'000, 4096, 12'345);
  CAPTURE(step);
  w.WriteAll(step);
  REQUIRE_OK(w.window->Flush());
  CHECK(w.InFile() == w.content);
  w.window->Forget();
  for (const int run : {0, 1}) {
    w.Run(run, 50'000, [&](int64_t offset, int64_t bytes) { CHECK(w.Reads(offset, bytes)); });
  }
  // In no order, and across the end of a chunk.
  for (int c : {7, 0, 12, 3, 3, 16, 5}) {
    CHECK(w.Reads(w.chunks[static_cast<size_t>(c)].offset + 1000, kFrame));
  }
}

TEST_CASE("DiskWindow: requests are as large as can be and no byte moves twice", "[thread]") {
  Window w;
  FaultyTransfers transfers;
  std::atomic<int64_t> read{0}, written{0}, requests{0};
  transfers.transfer = [&](bool writes, size_t* bytes, off_t) {
    (writes ? written : read) += static_cast<int64_t>(*bytes);
    ++requests;
    return 0;
  };
  const auto all = static_cast<int64_t>(w.content.size());
  const int64_t expected = 18 * 3 + 2;
  w.WriteAll(1000);
  REQUIRE_OK(w.window->Flush());
  CHECK(written == all);
  CHECK(read == 0);
  CHECK(requests == expected);
  w.window->Forget();
  for (const int run : {0, 1}) {
    w.Run(run, 1000, [&](int64_t offset, int64_t bytes) { CHECK(w.Reads(offset, bytes)); });
  }
  CHECK(read == all);
  CHECK(written == all);
  CHECK(requests == 2 * expected);
}

TEST_CASE("DiskWindow: chunks are read before they are asked for and written before Flush",
          "[thread]") {
  Window w;
  FaultyTransfers transfers;
  std::atomic<int64_t> read{0}, written{0};
  transfers.transfer = [&](bool writes, size_t* bytes, off_t) {
    (writes ? written : read) += static_cast<int64_t>(*bytes);
    return 0;
  };
  const auto comes_to = [](const std::atomic<int64_t>& bytes, int64_t wanted) {
    for (int ms = 0; ms < 20'000 && bytes != wanted; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return bytes == wanted;
  };
  w.Write(0, kFrame);
  w.Write(w.chunks[2].offset, 1);
  CHECK(comes_to(written, kFrame));
  w.window->Forget();
  CHECK(written == kFrame);
  CHECK(w.Reads(0, 1));
  CHECK(comes_to(read, 3 * kFrame));
}

TEST_CASE("DiskWindow: what is not written stays as it is", "[thread]") {
  Window w;
  w.WriteAll(100'000);
  REQUIRE_OK(w.window->Flush());
  w.window->Forget();
  // Holes, the end of a chunk, twice the same, before the last one, and what was read.
  const int64_t third = w.chunks[2].offset;
  w.Write(third + 10, 20, 2);
  w.Write(third + 5000, 4096, 2);
  w.Write(third + kFrame - 7, 7, 2);
  w.Write(third + 5000, 100, 3);
  w.Write(third + 200, 1, 3);
  CHECK(w.Reads(third, kFrame));
  w.Write(third + 300, 1, 3);
  CHECK(w.Reads(third + 299, 3));
  w.Write(w.chunks[18].offset + 70'000, 1, 4);
  REQUIRE_OK(w.window->Flush());
  CHECK(w.InFile() == w.content);
}

TEST_CASE("DiskWindow: a write that fails is told with path and reason until it is forgotten",
          "[thread]") {
  Window w;
  {
    FaultyTransfers transfers;
    std::atomic<int> left{4};
    transfers.transfer = [&](bool, size_t*, off_t) { return left-- == 0 ? EIO : 0; };
    absl::Status status;
    w.Run(0, 100'000, [&](int64_t offset, int64_t bytes) {
      status.Update(w.window->Write(offset, w.Fill(offset, bytes, 1), bytes));
    });
    status.Update(w.window->Flush());
    INFO(status);
    CHECK(absl::IsDataLoss(status));
    const std::string message(status.message());
    CHECK(message.find(w.file->path()) != std::string::npos);
    CHECK(message.find("writing 262144 bytes at byte ") != std::string::npos);
    CHECK(message.find("Input/output error") != std::string::npos);
    CHECK_FALSE(w.window->Flush().ok());
  }
  w.window->Forget();
  w.WriteAll(100'000);
  CHECK_OK(w.window->Flush());
  CHECK(w.InFile() == w.content);
}

TEST_CASE("DiskWindow: a read that fails is told to whoever asks for it and may be tried again",
          "[thread]") {
  Window w;
  w.WriteAll(100'000);
  REQUIRE_OK(w.window->Flush());
  w.window->Forget();
  {
    // Of the third chunk of a run, which is read while the first is asked for.
    FaultyTransfers transfers;
    const int64_t from = w.chunks[4].offset;
    transfers.transfer = [&](bool, size_t*, off_t offset) {
      return offset >= from && offset < from + kFrame ? EIO : 0;
    };
    CHECK(w.Reads(0, 1000));
    CHECK(w.Reads(w.chunks[2].offset, 1000));
    char byte = 0;
    const absl::Status status = w.window->Read(from + 5, &byte, 1);
    INFO(status);
    CHECK(absl::IsDataLoss(status));
    CHECK(std::string(status.message()).find("Input/output error") != std::string::npos);
    CHECK(w.Reads(w.chunks[6].offset, 1000));
    CHECK_FALSE(w.window->Read(from + 5, &byte, 1).ok());
  }
  CHECK(w.Reads(w.chunks[4].offset + 5, 1000));
}

TEST_CASE("DiskWindow: what is filled in place is written", "[thread]") {
  Window w;
  for (const DiskChunk& chunk : w.chunks) {
    for (int64_t done = 0; done < chunk.bytes; done += 300'000) {
      const int64_t offset = chunk.offset + done;
      const int64_t bytes = w.window->InOneChunk(offset, 300'000);
      CHECK(bytes == std::min<int64_t>(300'000, chunk.bytes - done));
      const absl::StatusOr<char*> memory = w.window->Fill(offset, bytes);
      REQUIRE_OK(memory.status());
      const char* const from = w.Fill(offset, bytes, 5);
      std::copy(from, from + bytes, *memory);
    }
  }
  REQUIRE_OK(w.window->Flush());
  CHECK(w.InFile() == w.content);
  CHECK(w.window->InOneChunk(w.file->size(), 1) == 0);
  CHECK(absl::IsInvalidArgument(w.window->Fill(10, kFrame).status()));
}

TEST_CASE("DiskWindow: what others have written is seen after Forget", "[thread]") {
  Window w;
  w.WriteAll(100'000);
  REQUIRE_OK(w.window->Flush());
  CHECK(w.Reads(w.chunks[2].offset, 100));
  const auto queue = DiskQueue::Create();
  REQUIRE_OK(queue.status());
  REQUIRE_OK((*queue)->Write(*w.file, w.chunks[2].offset, w.Fill(w.chunks[2].offset, 100, 9), 100));
  w.window->Forget();
  CHECK(w.Reads(w.chunks[2].offset, 200));
}

TEST_CASE("DiskWindow: what lies in no chunk and a chunk that does not fit are refused",
          "[thread]") {
  Window w;
  std::vector<DiskChunk> chunks = {{0, kFrame + 1, -1}};
  const auto refused = DiskWindow::Create(&*w.file, chunks, w.memory.get(), kFrame);
  CHECK(absl::IsInvalidArgument(refused.status()));
  char bytes[2] = {};
  for (const int64_t offset : {w.chunks[18].offset + 70'000, w.file->size(), int64_t{-1}}) {
    CHECK(absl::IsInvalidArgument(w.window->Read(offset, bytes, 2)));
    CHECK(absl::IsInvalidArgument(w.window->Write(offset, bytes, 2)));
  }
}

}  // namespace
}  // namespace zero
