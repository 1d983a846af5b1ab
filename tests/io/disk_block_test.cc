#include "io/disk_block.h"

#include <cerrno>
#include <vector>

#include "tests/catch.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

DiskBlock BlockOf(int64_t bytes) {
  DiskBlock block;
  block.bytes = bytes;
  return block;
}

// What each result in turn leaves done.
std::vector<int64_t> DoneAfter(DiskBlock& block, const DiskFile& file,
                               const std::vector<int64_t>& results) {
  std::vector<int64_t> done;
  for (const int64_t result : results) {
    Advance(block, file, result);
    done.push_back(block.done);
  }
  return done;
}

TEST_CASE("DiskBlock: short transfers of a file in the cache go on where they ended") {
  TemporaryFolder folder("/dev/shm");
  const DiskFile file = *DiskFile::Create(folder.File("f"), 8192);
  if (file.direct()) return;  // no file system in memory
  DiskBlock block = BlockOf(5000);
  CHECK(DoneAfter(block, file, {1, -EINTR, 99, -EAGAIN, 4900}) ==
        std::vector<int64_t>{1, 1, 100, 100, 5000});
  CHECK(block.finished());
  CHECK(!block.failed());
}

TEST_CASE("DiskBlock: a short transfer of a direct file begins again with its last sector") {
  TemporaryFolder folder;
  const DiskFile file = *DiskFile::Create(folder.File("f"), 8192);
  if (!file.direct()) return;  // a file system that has no O_DIRECT
  DiskBlock block = BlockOf(12288);
  const int64_t sector = file.offset_alignment();
  CHECK(DoneAfter(block, file, {sector - 1, sector + 1, 1, sector, 12288 - 2 * sector}) ==
        std::vector<int64_t>{0, sector, sector, 2 * sector, 12288});
  CHECK(block.finished());
  CHECK(!block.failed());
}

TEST_CASE("DiskBlock: one that gets no further ends with what came") {
  TemporaryFolder folder;
  const DiskFile file = *DiskFile::Create(folder.File("f"), 8192);
  DiskBlock block = BlockOf(8192);
  DoneAfter(block, file, {4096, 0});
  CHECK(block.ended);
  CHECK(block.finished());
  CHECK(BlockError(block, file, true).message() ==
        file.path() + ": writing 8192 bytes at byte 0: only 4096 were taken");
  if (!file.direct()) return;
  block = BlockOf(8192);
  int calls = 0;
  for (; !block.finished() && calls < 1000000; ++calls) Advance(block, file, 100);
  CHECK(block.ended);
  CHECK(calls > 10);
  CHECK(BlockError(block, file, false).message() ==
        file.path() + ": reading 8192 bytes at byte 0: only 100 came");
}

TEST_CASE("DiskBlock: an errno ends it") {
  TemporaryFolder folder;
  const DiskFile file = *DiskFile::Create(folder.File("f"), 8192);
  DiskBlock block = BlockOf(8192);
  DoneAfter(block, file, {4096, -EIO});
  CHECK(block.finished());
  CHECK(block.error == EIO);
  CHECK(block.done == 4096);
}

}  // namespace
}  // namespace zero
