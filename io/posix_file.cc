#include "io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/file_calls.h"

namespace zero {
namespace {

absl::StatusCode CodeFor(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::ErrnoToStatusCode(error);
  }
}

int OpenRetrying(const char* path, int flags, mode_t mode) {
  int descriptor = -1;
  do {
    descriptor = Files().Open(path, flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

int SyncRetrying(int descriptor) {
  int result = 0;
  do {
    result = Files().Fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

absl::Status PosixError(const std::string& path, const std::string& what, int error) {
  return absl::Status(CodeFor(error),
                      absl::StrCat(path, ": ", what, ": ", std::generic_category().message(error)));
}

TransferResult TransferAll(int64_t bytes, absl::FunctionRef<int64_t(int64_t, int64_t)> call) {
  TransferResult result;
  while (result.done < bytes) {
    const int64_t moved = call(result.done, bytes - result.done);
    if (moved == 0) break;
    if (moved > 0) {
      result.done += moved;
    } else if (errno != EINTR) {
      result.error = errno;
      break;
    }
  }
  return result;
}

absl::StatusOr<PosixFile> PosixFile::OpenExisting(const std::string& path, int access) {
  // O_NONBLOCK: opening a pipe must not wait for somebody at its other end.
  const int descriptor = OpenRetrying(path.c_str(), access | O_NONBLOCK, 0);
  if (descriptor < 0) return PosixError(path, "cannot open", errno);
  PosixFile file(descriptor, path, 0);
  struct stat info = {};
  if (fstat(descriptor, &info) != 0) return PosixError(path, "cannot read its size", errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  file.size_ = info.st_size;
  return file;
}

absl::StatusOr<PosixFile> PosixFile::OpenToRead(const std::string& path) {
  return OpenExisting(path, O_RDONLY);
}

absl::StatusOr<PosixFile> PosixFile::OpenToWrite(const std::string& path) {
  // Not for reading too: clients of NFS would then read, and write back, whole pages, over what
  // another one writes beside this one's range.
  return OpenExisting(path, O_WRONLY);
}

absl::StatusOr<PosixFile> PosixFile::CreateNew(const std::string& path) {
  const int descriptor = OpenRetrying(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (descriptor < 0) return PosixError(path, "cannot create", errno);
  return PosixFile(descriptor, path, 0);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) Files().Close(descriptor_);
}

absl::Status PosixFile::ReadAt(int64_t offset, absl::Span<char> out) const {
  const int64_t bytes = static_cast<int64_t>(out.size());
  const TransferResult result = TransferAll(bytes, [&](int64_t done, int64_t left) -> int64_t {
    return Files().Pread(descriptor_, out.data() + done, static_cast<size_t>(left), offset + done);
  });
  const std::string what = absl::StrCat("reading ", bytes, " bytes at byte ", offset);
  if (result.error != 0) return PosixError(path_, what, result.error);
  if (result.done < bytes) {
    return absl::DataLossError(
        absl::StrCat(path_, ": ", what, ": the file ends at byte ", offset + result.done));
  }
  return absl::OkStatus();
}

absl::Status PosixFile::WriteAt(int64_t offset, absl::Span<const char> bytes) const {
  const int64_t size = static_cast<int64_t>(bytes.size());
  const TransferResult result = TransferAll(size, [&](int64_t done, int64_t left) -> int64_t {
    return Files().Pwrite(descriptor_, bytes.data() + done, static_cast<size_t>(left),
                          offset + done);
  });
  if (result.done == size) return absl::OkStatus();
  return PosixError(path_, absl::StrCat("writing ", size, " bytes at byte ", offset),
                    result.error != 0 ? result.error : EIO);
}

absl::Status PosixFile::Resize(int64_t bytes) const {
  int result = 0;
  do {
    result = Files().Truncate(descriptor_, bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return absl::OkStatus();
  return PosixError(path_, absl::StrCat("making it ", bytes, " bytes long"), errno);
}

absl::Status PosixFile::Sync() const {
  if (SyncRetrying(descriptor_) != 0) return PosixError(path_, "fsync", errno);
  return absl::OkStatus();
}

bool PosixFile::Bypass(bool on) const { return Files().Bypass(descriptor_, on) == 0; }

void PosixFile::WillSync(int64_t offset, int64_t bytes) const {
  // Advice only: Sync finds what fails.
  sync_file_range(descriptor_, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

absl::Status SyncFolder(const std::string& folder) {
  const int descriptor = OpenRetrying(folder.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (descriptor < 0) return PosixError(folder, "cannot open to fsync", errno);
  const int error = SyncRetrying(descriptor) == 0 ? 0 : errno;
  Files().Close(descriptor);
  // EINVAL: the file system has no such thing as syncing a folder.
  if (error != 0 && error != EINVAL) return PosixError(folder, "fsync of the folder", error);
  return absl::OkStatus();
}

}  // namespace zero
