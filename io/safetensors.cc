#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/file_kind.h"
#include "io/float16.h"
#include "io/posix_file.h"
#include "io/safetensors_json.h"
#include "io/safetensors_layout.h"

namespace zero {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie in memory");

constexpr int64_t kLengthBytes = 8;

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", std::string(status.message())));
}

// The header's text, if the file can have the header that it claims to have.
absl::StatusOr<std::string> ReadHeaderText(const PosixFile& file) {
  std::string start(static_cast<size_t>(std::min<int64_t>(file.size(), 64)), '\0');
  ZERO_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(start.data(), start.size())));
  const auto refuse = [&](const std::string& why) {
    const std::string kind = OtherKindOfFile(start);
    if (kind.empty()) return absl::DataLossError(absl::StrCat(file.path(), ": ", why));
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": not a safetensors file: ", kind, "; ", why));
  };
  if (file.size() < kLengthBytes) {
    return refuse(absl::StrCat("the file has ", file.size(), " bytes, a header's length alone ",
                               kLengthBytes));
  }
  uint64_t length = 0;
  std::memcpy(&length, start.data(), sizeof(length));
  if (length > static_cast<uint64_t>(kSafetensorsHeaderLimit)) {
    return refuse(absl::StrCat("the first 8 bytes say that the header has ", length,
                               " bytes; at most ", kSafetensorsHeaderLimit, " are allowed"));
  }
  if (static_cast<int64_t>(length) > file.size() - kLengthBytes) {
    return refuse(absl::StrCat("the first 8 bytes say that the header has ", length,
                               " bytes, but the file has ", file.size(), " in all"));
  }
  if (length == 0 || start[kLengthBytes] != '{') {
    return refuse(absl::StrCat("the header of ", length, " bytes does not begin with '{'"));
  }
  std::string text(static_cast<size_t>(length), '\0');
  ZERO_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, absl::MakeSpan(text.data(), text.size())));
  return text;
}

template <float (*kWiden)(uint16_t)>
absl::Status ReadWidened(const PosixFile& file, int64_t offset, absl::Span<float> out) {
  constexpr size_t kChunk = 1 << 16;
  std::vector<uint16_t> chunk(std::min(out.size(), kChunk));
  for (size_t done = 0; done < out.size(); done += kChunk) {
    const size_t n = std::min(out.size() - done, kChunk);
    ZERO_RETURN_IF_ERROR(file.ReadAt(offset + static_cast<int64_t>(done) * 2,
                                     absl::MakeSpan(reinterpret_cast<char*>(chunk.data()), n * 2)));
    for (size_t i = 0; i < n; ++i) out[done + i] = kWiden(chunk[i]);
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const std::string& path, const SafetensorsTensor& tensor, int64_t first,
                        size_t count, int64_t total, const char* unit) {
  if (first >= 0 && first <= total && count <= static_cast<uint64_t>(total - first)) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat(path, ": ", DescribeTensor(tensor.name), ": ", count,
                                            " ", unit, " from ", first, " on asked for; it has ",
                                            total));
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ZERO_ASSIGN_OR_RETURN(PosixFile opened, PosixFile::OpenToRead(path));
  ZERO_ASSIGN_OR_RETURN(const std::string text, ReadHeaderText(opened));
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text);
  if (!header.ok()) return WithPath(path, header.status());

  SafetensorsFile file;
  file.data_start_ = kLengthBytes + static_cast<int64_t>(text.size());
  file.tensors_ = std::move(header->tensors);
  file.metadata_ = std::move(header->metadata);
  const absl::Status layout = CheckLayout(file.tensors_, opened.size() - file.data_start_);
  if (!layout.ok()) return WithPath(path, layout);
  for (size_t i = 0; i < file.tensors_.size(); ++i) file.index_[file.tensors_[i].name] = i;
  file.file_ = std::make_shared<const PosixFile>(std::move(opened));
  return file;
}

const std::string& SafetensorsFile::path() const { return file_->path(); }

absl::StatusOr<const SafetensorsTensor*> SafetensorsFile::Find(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return absl::NotFoundError(absl::StrCat(path(), ": no ", DescribeTensor(name), " among ",
                                            tensors_.size(), " tensors"));
  }
  return &tensors_[found->second];
}

absl::Status SafetensorsFile::Read(const std::string& name, int64_t first,
                                   absl::Span<float> out) const {
  ZERO_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, Find(name));
  ZERO_RETURN_IF_ERROR(
      CheckRange(path(), *tensor, first, out.size(), tensor->elements(), "elements"));
  const int64_t start = data_start_ + tensor->begin;
  if (tensor->dtype == "F32") {
    return file_->ReadAt(start + first * 4,
                         absl::MakeSpan(reinterpret_cast<char*>(out.data()), out.size() * 4));
  }
  if (tensor->dtype == "BF16") return ReadWidened<FloatFromBF16>(*file_, start + first * 2, out);
  if (tensor->dtype == "F16") return ReadWidened<FloatFromF16>(*file_, start + first * 2, out);
  return absl::InvalidArgumentError(absl::StrCat(path(), ": ", DescribeTensor(name), " is ",
                                                 tensor->dtype, "; only F32, BF16 and F16 can be ",
                                                 "read as fp32"));
}

absl::Status SafetensorsFile::ReadBytes(const std::string& name, int64_t first,
                                        absl::Span<char> out) const {
  ZERO_ASSIGN_OR_RETURN(const SafetensorsTensor* tensor, Find(name));
  ZERO_RETURN_IF_ERROR(CheckRange(path(), *tensor, first, out.size(), tensor->bytes(), "bytes"));
  return file_->ReadAt(data_start_ + tensor->begin + first, out);
}

}  // namespace zero
