// Reading and writing safetensors files, the format of weights on the Hugging Face hub.
//
// A file is an 8-byte little-endian length, a JSON header of that length, and the tensors' bytes
// back to back, row-major, little-endian. Values are never interpreted except by
// SafetensorsFile::Read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/dtype.h"

namespace zero {

class PosixFile;

struct SafetensorsTensor {
  std::string name;
  std::string dtype;           // as in the file: "F32", "BF16", "F16", "I64", ...
  std::vector<int64_t> shape;  // [] is one element
  int64_t begin = 0;           // first byte, counted from the first byte after the header
  int64_t end = 0;             // one past the last byte

  int64_t bytes() const { return end - begin; }
  int64_t elements() const;
};

// "F32", "BF16", "F16".
const char* SafetensorsName(DType type);

// One open file. Copies share it. Safe from several threads.
class SafetensorsFile {
 public:
  // Reads and checks the header; memory use is bounded by the real size of the file, whatever the
  // header claims. kInvalidArgument: something else than a safetensors file (a git-lfs pointer, an
  // HTML page, a torch .bin are named). kDataLoss: damaged, naming tensor and bytes. Stricter than
  // the format: a name or field that occurs twice is refused.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const;
  // In the order of their bytes.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // kNotFound.
  absl::StatusOr<const SafetensorsTensor*> Find(const std::string& name) const;

  // Elements [first, first + out.size()) of an F32, BF16 or F16 tensor as fp32, exactly.
  // kInvalidArgument for another dtype, kOutOfRange past the end.
  absl::Status Read(const std::string& name, int64_t first, absl::Span<float> out) const;
  // Bytes [first, first + out.size()) of a tensor.
  absl::Status ReadBytes(const std::string& name, int64_t first, absl::Span<char> out) const;

 private:
  SafetensorsFile() = default;

  std::shared_ptr<const PosixFile> file_;
  int64_t data_start_ = 0;  // first byte after the header
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, size_t> index_;
};

enum class SafetensorsOrder : uint8_t {
  kGiven,   // tensors in the order of the list
  kSorted,  // the reference writer's: dtypes from the most to the least aligned, then names
};

// Writes one file under a temporary name beside the target and renames it in Finish, so that the
// target is at any time either absent, the old file or the new one, whole. An object that is
// destroyed without Finish removes what it wrote; after SIGKILL a file ".<name>.<pid>-<n>.tmp"
// stays. Errors name path, tensor and bytes. The first write that the system refuses stays: every
// later call returns its error.
class SafetensorsWriter {
 public:
  // `begin` and `end` of the tensors are ignored. kInvalidArgument: a name twice, an unknown dtype,
  // a size that overflows, text that is not UTF-8.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, std::vector<SafetensorsTensor> tensors,
      const std::map<std::string, std::string>& metadata = {},
      SafetensorsOrder order = SafetensorsOrder::kGiven);
  virtual ~SafetensorsWriter() = default;

  // As laid out.
  virtual const std::vector<SafetensorsTensor>& tensors() const = 0;

  // The next bytes in the order of tensors(), over their borders.
  virtual absl::Status Append(absl::Span<const char> bytes) = 0;
  // Bytes of one tensor from byte `first` of it on. Each byte is written once, by Append or Write.
  // Safe from several threads.
  virtual absl::Status Write(const std::string& name, int64_t first,
                             absl::Span<const char> bytes) = 0;

  // When every Write has returned. kFailedPrecondition names the first byte that was not written.
  // After OK the file is on the disk under its name. An error of the last step, the sync of the
  // folder, comes when the file already has its name.
  virtual absl::Status Finish() = 0;
};

}  // namespace zero
