#include "bench/plain_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "device/status.h"
#include "io/posix_file.h"

namespace zero::bench {
namespace {

constexpr int64_t kCall = 1 << 20;

}  // namespace

absl::Status WritePlain(const std::string& path, int64_t bytes) {
  ZERO_ASSIGN_OR_RETURN(const PosixFile file, PosixFile::CreateNew(path));
  std::vector<char> block(static_cast<size_t>(kCall));
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 31 >> 3);
  for (int64_t done = 0; done < bytes; done += kCall) {
    const auto count = static_cast<size_t>(std::min(kCall, bytes - done));
    ZERO_RETURN_IF_ERROR(file.WriteAt(done, {block.data(), count}));
  }
  return file.Sync();
}

absl::Status ReadPlain(const std::string& path) {
  ZERO_ASSIGN_OR_RETURN(const PosixFile file, PosixFile::OpenToRead(path));
  std::vector<char> block(static_cast<size_t>(kCall));
  for (int64_t done = 0; done < file.size(); done += kCall) {
    const auto count = static_cast<size_t>(std::min(kCall, file.size() - done));
    ZERO_RETURN_IF_ERROR(file.ReadAt(done, absl::MakeSpan(block.data(), count)));
  }
  return absl::OkStatus();
}

absl::Status Forget(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return PosixError(path, "cannot open", errno);
  const int error = posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  close(descriptor);
  return error == 0 ? absl::OkStatus() : PosixError(path, "cannot be forgotten", error);
}

}  // namespace zero::bench
