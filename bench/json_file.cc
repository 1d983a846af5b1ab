#include "bench/json_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace zero::bench {

absl::Status CheckJsonFile(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // A file that this makes goes again; one that is there stays as it is.
  int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const bool made = file >= 0;
  if (!made && errno == EEXIST) file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) {
    return absl::UnavailableError(absl::StrCat(
        "--json: '", path, "' cannot be written: ", std::generic_category().message(errno)));
  }
  close(file);
  if (made) unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace zero::bench
