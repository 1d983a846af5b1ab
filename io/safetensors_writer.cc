#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/safetensors.h"
#include "io/safetensors_image.h"
#include "io/safetensors_layout.h"
#include "io/temporary_file.h"

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

class Writer : public SafetensorsWriter {
 public:
  Writer(TemporaryFile file, SafetensorsImage image)
      : path_(file.target()),
        file_(std::move(file)),
        tensors_(std::move(image.tensors)),
        data_start_(image.data_start),
        data_bytes_(image.bytes - image.data_start) {
    for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
  }

  const std::vector<SafetensorsTensor>& tensors() const override { return tensors_; }

  absl::Status WriteStart(const std::string& start) {
    return Named("the header", file_->file().WriteAt(0, start));
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
    absl::Status done = Named("to disk", file_->Publish());
    file_.reset();
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
    absl::Status done =
        Named(DescribePlace(begin), file_->file().WriteAt(data_start_ + begin, bytes));
    if (!done.ok()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (first_error_.ok()) first_error_ = done;
    }
    return done;
  }

  const std::string path_;
  std::optional<TemporaryFile> file_;
  const std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, size_t> index_;
  const int64_t data_start_;
  const int64_t data_bytes_;
  int64_t appended_ = 0;

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
  absl::StatusOr<SafetensorsImage> image = PlanSafetensors(std::move(tensors), metadata, order);
  if (!image.ok()) return named(image.status());
  absl::StatusOr<TemporaryFile> file = TemporaryFile::CreateFor(path);
  if (!file.ok()) return named(file.status());
  const std::string start = image->start;
  auto writer = std::make_unique<Writer>(*std::move(file), *std::move(image));
  ZERO_RETURN_IF_ERROR(writer->WriteStart(start));
  return writer;
}

}  // namespace zero
