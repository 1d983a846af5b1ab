#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/posix_file.h"
#include "io/safetensors.h"
#include "io/safetensors_json.h"
#include "io/safetensors_layout.h"

namespace zero {
namespace {

// Which bytes of [0, total) are written: disjoint runs, none touching the next.
class Coverage {
 public:
  // False, and nothing changed, if a byte of [begin, end) is written already.
  bool Add(int64_t begin, int64_t end) {
    if (begin == end) return true;
    auto next = runs_.lower_bound(begin);
    if (next != runs_.end() && next->first < end) return false;
    if (next != runs_.begin() && std::prev(next)->second > begin) return false;
    if (next != runs_.end() && next->first == end) {
      end = next->second;
      next = runs_.erase(next);
    }
    if (next != runs_.begin() && std::prev(next)->second == begin) {
      std::prev(next)->second = end;
    } else {
      runs_.emplace_hint(next, begin, end);
    }
    return true;
  }

  int64_t FirstMissing() const {
    return runs_.empty() || runs_.begin()->first != 0 ? 0 : runs_.begin()->second;
  }

 private:
  std::map<int64_t, int64_t> runs_;  // begin -> end
};

// Checks the list and gives each tensor its bytes; the sum of all.
absl::StatusOr<int64_t> LayOut(std::vector<SafetensorsTensor>& tensors, SafetensorsOrder order) {
  std::set<std::string> names;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name),
                       tensor.name == "__metadata__" ? ": a reserved name" : " is listed twice"));
    }
    if (tensor.shape.size() > kSafetensorsRankLimit) {
      return absl::InvalidArgumentError(absl::StrCat(DescribeTensor(tensor.name), ": more than ",
                                                     kSafetensorsRankLimit, " dimensions"));
    }
  }
  if (order == SafetensorsOrder::kSorted) {
    std::sort(tensors.begin(), tensors.end(),
              [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
                const int rank_a = SafetensorsDTypeOrder(a.dtype);
                const int rank_b = SafetensorsDTypeOrder(b.dtype);
                return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
              });
  }
  int64_t total = 0;
  for (SafetensorsTensor& tensor : tensors) {
    const absl::StatusOr<int64_t> bytes = BytesOf(tensor);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name), ": ", std::string(bytes.status().message())));
    }
    tensor.begin = total;
    if (__builtin_add_overflow(total, *bytes, &total)) {
      return absl::InvalidArgumentError(
          absl::StrCat(DescribeTensor(tensor.name), ": the file's size overflows 64 bits"));
    }
    tensor.end = total;
  }
  return total;
}

// A file that nobody else has, beside `path`.
absl::StatusOr<PosixFile> CreateTemporary(const std::string& path) {
  static std::atomic<int> counter{0};
  const std::filesystem::path target(path);
  // Cut, so that the name stays below the limit of file systems.
  const std::string name = target.filename().string().substr(0, 120);
  while (true) {
    const std::string temporary = absl::StrCat(".", name, ".", getpid(), "-", counter++, ".tmp");
    absl::StatusOr<PosixFile> file =
        PosixFile::CreateNew((target.parent_path() / temporary).string());
    if (file.ok() || !absl::IsAlreadyExists(file.status())) return file;
  }
}

class Writer : public SafetensorsWriter {
 public:
  Writer(std::string path, PosixFile file, std::vector<SafetensorsTensor> tensors,
         int64_t data_start, int64_t data_bytes)
      : path_(std::move(path)),
        temporary_(file.path()),
        file_(std::move(file)),
        tensors_(std::move(tensors)),
        data_start_(data_start),
        data_bytes_(data_bytes) {
    for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
  }

  ~Writer() override {
    if (!renamed_) unlink(temporary_.c_str());
  }

  const std::vector<SafetensorsTensor>& tensors() const override { return tensors_; }

  absl::Status WriteHeader(const std::string& text) {
    const uint64_t length = text.size();
    std::string start(sizeof(length), '\0');
    std::memcpy(start.data(), &length, sizeof(length));
    return Named("the header", file_->WriteAt(0, start + text));
  }

  absl::Status Append(absl::Span<const char> bytes) override {
    const int64_t size = static_cast<int64_t>(bytes.size());
    if (size > data_bytes_ - appended_) {
      return absl::OutOfRangeError(absl::StrCat(path_, ": ", size, " bytes appended to ", appended_,
                                                "; the tensors take ", data_bytes_));
    }
    ZERO_RETURN_IF_ERROR(WriteRange(appended_, bytes));
    appended_ += size;
    return absl::OkStatus();
  }

  absl::Status Write(const std::string& name, int64_t first,
                     absl::Span<const char> bytes) override {
    const auto found = index_.find(name);
    if (found == index_.end()) {
      return absl::NotFoundError(absl::StrCat(path_, ": no ", DescribeTensor(name), " in it"));
    }
    const SafetensorsTensor& tensor = tensors_[found->second];
    if (first < 0 || first > tensor.bytes() ||
        static_cast<int64_t>(bytes.size()) > tensor.bytes() - first) {
      return absl::OutOfRangeError(absl::StrCat(path_, ": ", DescribeTensor(name), ": ",
                                                bytes.size(), " bytes from byte ", first,
                                                " on; it has ", tensor.bytes()));
    }
    return WriteRange(tensor.begin + first, bytes);
  }

  absl::Status Finish() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ZERO_RETURN_IF_ERROR(first_error_);
    const int64_t missing = written_.FirstMissing();
    if (missing < data_bytes_) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": ", DescribePlace(missing), " was never written"));
    }
    first_error_ = absl::FailedPreconditionError(absl::StrCat(path_, ": the file is finished"));
    absl::Status done = Publish();
    if (!done.ok()) first_error_ = done;
    return done;
  }

 private:
  // "byte 4 of 8 of tensor 'x'": for a byte of the data.
  std::string DescribePlace(int64_t byte) const {
    const auto after =
        std::upper_bound(tensors_.begin(), tensors_.end(), byte,
                         [](int64_t at, const SafetensorsTensor& t) { return at < t.end; });
    if (after == tensors_.end()) return "the end";
    return absl::StrCat("byte ", byte - after->begin, " of ", after->bytes(), " of ",
                        DescribeTensor(after->name));
  }

  absl::Status Named(const std::string& what, const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(path_, ": writing ", what, ": ",
                                                    std::string(status.message())));
  }

  absl::Status WriteRange(int64_t begin, absl::Span<const char> bytes) {
    const int64_t end = begin + static_cast<int64_t>(bytes.size());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ZERO_RETURN_IF_ERROR(first_error_);
      if (!written_.Add(begin, end)) {
        return absl::InvalidArgumentError(absl::StrCat(path_, ": ", bytes.size(), " bytes from ",
                                                       DescribePlace(begin),
                                                       " on: some of them are written already"));
      }
    }
    if (bytes.empty()) return absl::OkStatus();
    absl::Status done = Named(DescribePlace(begin), file_->WriteAt(data_start_ + begin, bytes));
    if (!done.ok()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (first_error_.ok()) first_error_ = done;
    }
    return done;
  }

  absl::Status Publish() {
    ZERO_RETURN_IF_ERROR(Named("to disk", file_->Sync()));
    file_.reset();
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return PosixError(path_, absl::StrCat("cannot rename ", temporary_, " to it"), errno);
    }
    renamed_ = true;
    return SyncFolder(FolderOf(path_));
  }

  const std::string path_;
  const std::string temporary_;
  std::optional<PosixFile> file_;
  const std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, size_t> index_;
  const int64_t data_start_;
  const int64_t data_bytes_;
  int64_t appended_ = 0;
  bool renamed_ = false;

  std::mutex mutex_;
  Coverage written_;
  absl::Status first_error_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<SafetensorsTensor> tensors,
    const std::map<std::string, std::string>& metadata, SafetensorsOrder order) {
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(path, ": ", std::string(status.message())));
  };
  const absl::StatusOr<int64_t> data_bytes = LayOut(tensors, order);
  if (!data_bytes.ok()) return named(data_bytes.status());
  const absl::StatusOr<std::string> text = FormatSafetensorsHeader({tensors, metadata});
  if (!text.ok()) return named(text.status());
  if (static_cast<int64_t>(text->size()) > kSafetensorsHeaderLimit) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the header has ", text->size(),
                                                   " bytes; at most ", kSafetensorsHeaderLimit,
                                                   " are allowed"));
  }
  // A rename would replace a device or pipe as readily as a file.
  struct stat target = {};
  if (lstat(path.c_str(), &target) == 0 && !S_ISREG(target.st_mode) && !S_ISLNK(target.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": exists and is not a regular file"));
  }
  absl::StatusOr<PosixFile> file = CreateTemporary(path);
  if (!file.ok()) return named(file.status());
  auto writer = std::make_unique<Writer>(path, *std::move(file), std::move(tensors),
                                         static_cast<int64_t>(text->size()) + 8, *data_bytes);
  ZERO_RETURN_IF_ERROR(writer->WriteHeader(*text));
  return writer;
}

}  // namespace zero
