#include "io/disk_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/file_calls.h"
#include "io/posix_file.h"

namespace zero {
namespace {

int OpenRetrying(const std::string& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = Files().Open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

absl::Status NoRoom(const std::string& path, int64_t bytes, int error) {
  return PosixError(path, absl::StrCat("cannot set ", bytes, " bytes aside", FreeThere(path)),
                    error);
}

// False: the file has its length, but the file system sets no room aside.
absl::StatusOr<bool> SetAside(int descriptor, const std::string& path, int64_t bytes) {
  if (bytes == 0) return true;
  int result = 0;
  do {
    result = Files().Allocate(descriptor, bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  const int error = errno;
  // What it took before it failed would count as used.
  Files().Truncate(descriptor, 0);
  if (error != EOPNOTSUPP && error != ENOSYS) return NoRoom(path, bytes, error);
  // To write it whole instead would take as long as the first steps.
  struct statvfs info = {};
  if (fstatvfs(descriptor, &info) == 0 &&
      bytes / static_cast<int64_t>(info.f_frsize) >= static_cast<int64_t>(info.f_bavail)) {
    return NoRoom(path, bytes, ENOSPC);
  }
  do {
    result = Files().Truncate(descriptor, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return NoRoom(path, bytes, errno);
  return false;
}

struct Alignments {
  int64_t offset = kDiskAlignment;
  int64_t memory = kDiskAlignment;
};

// What direct transfers of the file need. Systems that do not say get what every disk takes.
Alignments AskAlignments(int descriptor) {
  Alignments alignments;
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    alignments = {info.stx_dio_offset_align, info.stx_dio_mem_align};
  }
#else
  (void)descriptor;
#endif
  return alignments;
}

// New kernels take O_DIRECT there, which says nothing of a disk.
bool LiesInMemory(int descriptor) {
  struct statfs info = {};
  return fstatfs(descriptor, &info) == 0 &&
         (info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC);
}

// Whether a direct transfer goes through: some file systems refuse the first one, not the opening.
int TryRead(int descriptor) {
  const AlignedBytes sector = AllocateAligned(kDiskAlignment);
  if (sector == nullptr) return ENOMEM;
  ssize_t result = 0;
  do {
    result = Files().Pread(descriptor, sector.get(), kDiskAlignment, 0);
  } while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

}  // namespace

std::string FreeThere(const std::string& path) {
  struct statvfs info = {};
  if (statvfs(path.c_str(), &info) != 0) return "";
  return absl::StrCat(" where ", info.f_bavail * info.f_frsize, " are free");
}

absl::StatusOr<DiskFile> DiskFile::Create(const std::string& path, int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a file of ", bytes, " bytes"));
  }
  // Not direct at first: where that is refused the file would be there all the same.
  const int descriptor = OpenRetrying(path, O_CREAT | O_EXCL);
  if (descriptor < 0) return PosixError(path, "cannot create", errno);
  DiskFile file(descriptor, path, bytes);
  const absl::StatusOr<bool> room = SetAside(descriptor, path, PaddedForDisk(bytes));
  if (!room.ok()) {
    Files().Unlink(path.c_str());
    return room.status();
  }
  file.TryDirect();
  if (!*room) {
    const std::string what = absl::StrCat(
        path, ": its file system sets no room aside, so that a later write may find the disk full");
    file.note_ = file.note_.empty() ? what : absl::StrCat(what, "; ", file.note_);
  }
  return file;
}

void DiskFile::TryDirect() {
  DiskFile direct(OpenRetrying(path_, O_DIRECT), path_, size_);
  const auto refused = [&](const std::string& why) {
    note_ = absl::StrCat(path_, ": reads and writes go through the system's cache: ", why);
  };
  if (direct.descriptor_ < 0) {
    return refused(absl::StrCat("O_DIRECT: ", std::generic_category().message(errno)));
  }
  const Alignments needed = AskAlignments(direct.descriptor_);
  if (LiesInMemory(direct.descriptor_)) return refused("the file system is one in memory");
  if (needed.offset == 0) return refused("the file system has nothing else");
  if (needed.offset > kDiskAlignment || needed.memory > kDiskAlignment) {
    return refused(absl::StrCat("O_DIRECT needs multiples of ", needed.offset,
                                " bytes at multiples of ", needed.memory, " of memory; at most ",
                                kDiskAlignment, " fit"));
  }
  const int error = TryRead(direct.descriptor_);
  if (error != 0) {
    return refused(absl::StrCat("O_DIRECT: ", std::generic_category().message(error)));
  }
  direct.direct_ = true;
  direct.offset_alignment_ = needed.offset;
  direct.memory_alignment_ = std::max<int64_t>(needed.memory, 1);
  *this = std::move(direct);
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_),
      direct_(other.direct_),
      offset_alignment_(other.offset_alignment_),
      memory_alignment_(other.memory_alignment_),
      note_(std::move(other.note_)) {}

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(direct_, other.direct_);
  std::swap(offset_alignment_, other.offset_alignment_);
  std::swap(memory_alignment_, other.memory_alignment_);
  std::swap(note_, other.note_);
  return *this;
}

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) Files().Close(descriptor_);
}

}  // namespace zero
