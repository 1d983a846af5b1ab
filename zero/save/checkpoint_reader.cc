#include "zero/save/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/status.h"
#include "io/checksummed_file.h"
#include "io/float16.h"
#include "io/safetensors_json.h"
#include "io/safetensors_layout.h"

namespace zero {
namespace {

constexpr size_t kNarrowElements = 1 << 17;  // 16-bit values that are widened at once

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// A file of the checkpoint. One that is not there is damage, not a wrong path.
absl::StatusOr<ChecksummedReader> OpenChecksummed(const std::string& folder,
                                                  const CheckpointFile& file) {
  const std::string path = absl::StrCat(folder, "/", file.name);
  absl::StatusOr<ChecksummedReader> reader =
      ChecksummedReader::Open(path, file.bytes, file.checksums);
  if (absl::IsNotFound(reader.status())) {
    return Damaged(path, "is missing; the manifest says that the checkpoint has this file");
  }
  return reader;
}

// The header of a safetensors file, its tensors in the order of their bytes.
absl::StatusOr<SafetensorsHeader> ReadHeader(ChecksummedReader& reader, int64_t* data_start) {
  uint64_t length = 0;
  const int64_t most = std::min(reader.bytes() - 8, kSafetensorsHeaderLimit);
  if (most < 0) return Damaged(reader.path(), "is too short for a safetensors file");
  ZERO_RETURN_IF_ERROR(reader.ReadAt(0, {reinterpret_cast<char*>(&length), sizeof(length)}));
  if (length > static_cast<uint64_t>(most)) {
    return Damaged(reader.path(), absl::StrCat("says that its header has ", length,
                                               " bytes; at most ", most, " are possible"));
  }
  std::string text(length, ' ');
  ZERO_RETURN_IF_ERROR(reader.ReadAt(8, absl::MakeSpan(text.data(), text.size())));
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text);
  if (!header.ok()) return WithPath(reader.path(), header.status());
  *data_start = 8 + static_cast<int64_t>(length);
  const absl::Status layout = CheckLayout(header->tensors, reader.bytes() - *data_start);
  if (!layout.ok()) return WithPath(reader.path(), layout);
  return header;
}

// Elements of which all bits of the exponent are set.
template <class Bits>
int64_t CountNonFinite(absl::Span<const char> bytes, Bits exponent) {
  int64_t count = 0;
  for (size_t i = 0; i < bytes.size(); i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i, sizeof(Bits));
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

int64_t CountNonFinite(absl::Span<const char> bytes, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CountNonFinite<uint32_t>(bytes, 0x7F800000u);
    case DType::kBF16:
      return CountNonFinite<uint16_t>(bytes, 0x7F80u);
    case DType::kF16:
      return CountNonFinite<uint16_t>(bytes, 0x7C00u);
  }
  return 0;
}

}  // namespace

struct CheckpointReader::OpenFile {
  explicit OpenFile(ChecksummedReader opened) : reader(std::move(opened)) {}

  ChecksummedReader reader;
  std::map<std::string, int64_t> begins;  // of each tensor, in the file
  int64_t last_use = 0;
};

CheckpointReader::CheckpointReader(std::string folder, CheckpointManifest manifest)
    : folder_(std::move(folder)),
      manifest_(std::make_unique<CheckpointManifest>(std::move(manifest))),
      places_(manifest_->parameters.size()) {
  for (size_t f = 0; f < manifest_->files.size(); ++f) {
    for (const CheckpointPiece& piece : manifest_->files[f].pieces) {
      places_[static_cast<size_t>(piece.parameter)].push_back({piece.first, piece.count, f});
    }
  }
  for (std::vector<Place>& places : places_) {
    std::sort(places.begin(), places.end(),
              [](const Place& a, const Place& b) { return a.first < b.first; });
  }
}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& folder) {
  ZERO_ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadManifest(folder));
  for (const CheckpointFile& file : manifest.files) {
    ZERO_RETURN_IF_ERROR(OpenChecksummed(folder, file).status());
  }
  return CheckpointReader(folder, std::move(manifest));
}

absl::StatusOr<std::unique_ptr<CheckpointReader::OpenFile>> CheckpointReader::OpenAt(
    size_t file) const {
  const CheckpointFile& described = manifest_->files[file];
  ZERO_ASSIGN_OR_RETURN(ChecksummedReader reader, OpenChecksummed(folder_, described));
  auto opened = std::make_unique<OpenFile>(std::move(reader));
  int64_t data_start = 0;
  ZERO_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadHeader(opened->reader, &data_start));
  std::map<std::string, const SafetensorsTensor*> found;
  for (const SafetensorsTensor& tensor : header.tensors) {
    found[tensor.name] = &tensor;
    opened->begins[tensor.name] = data_start + tensor.begin;
  }
  size_t wanted = 0;
  for (const CheckpointPiece& piece : described.pieces) {
    const CheckpointParameter& parameter = manifest_->parameters[piece.parameter];
    for (const auto& [state, dtype] : parameter.states) {
      ++wanted;
      const std::string name = CheckpointTensorName(state, parameter);
      const auto tensor = found.find(name);
      if (tensor == found.end()) {
        return Damaged(opened->reader.path(), absl::StrCat("has no ", DescribeTensor(name)));
      }
      if (tensor->second->dtype != SafetensorsName(dtype) ||
          tensor->second->shape != std::vector<int64_t>{piece.count}) {
        return Damaged(opened->reader.path(),
                       absl::StrCat(DescribeTensor(name), " is not ", SafetensorsName(dtype), " [",
                                    piece.count, "], as the manifest says"));
      }
      found.erase(tensor);
    }
  }
  if (!found.empty()) {
    return Damaged(opened->reader.path(), absl::StrCat(DescribeTensor(found.begin()->first),
                                                       " is not in the manifest, which says that "
                                                       "there are ",
                                                       wanted, " tensors"));
  }
  return opened;
}

absl::StatusOr<CheckpointReader::OpenFile*> CheckpointReader::FileAt(size_t file) {
  auto found = open_.find(file);
  if (found == open_.end()) {
    if (open_.size() >= kOpenFiles) {
      open_.erase(std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
        return a.second->last_use < b.second->last_use;
      }));
    }
    ZERO_ASSIGN_OR_RETURN(std::unique_ptr<OpenFile> opened, OpenAt(file));
    found = open_.emplace(file, std::move(opened)).first;
  }
  found->second->last_use = ++uses_;
  return found->second.get();
}

absl::Status CheckpointReader::Read(int64_t parameter, const std::string& state, int64_t first,
                                    absl::Span<float> out) {
  const auto parameters = static_cast<int64_t>(manifest_->parameters.size());
  if (parameter < 0 || parameter >= parameters) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder_, ": parameter ", parameter, " is asked for; there are ", parameters));
  }
  const CheckpointParameter& described = manifest_->parameters[parameter];
  if (described.states.count(state) == 0) {
    return absl::NotFoundError(
        absl::StrCat(folder_, ": parameter '", described.name, "' has no ", state));
  }
  const int64_t elements = ElementCount(described);
  const auto count = static_cast<int64_t>(out.size());
  if (first < 0 || first > elements || count > elements - first) {
    return absl::OutOfRangeError(absl::StrCat(folder_, ": ", count, " elements from ", first,
                                              " on of '", described.name, "', which has ",
                                              elements));
  }
  const std::vector<Place>& places = places_[parameter];
  auto place = std::upper_bound(places.begin(), places.end(), first,
                                [](int64_t at, const Place& p) { return at < p.first + p.count; });
  while (!out.empty()) {
    const auto n = static_cast<size_t>(
        std::min<int64_t>(place->first + place->count - first, static_cast<int64_t>(out.size())));
    ZERO_RETURN_IF_ERROR(ReadPlace(*place, parameter, state, first, out.subspan(0, n)));
    out.remove_prefix(n);
    first += static_cast<int64_t>(n);
    ++place;
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadPlace(const Place& place, int64_t parameter,
                                         const std::string& state, int64_t first,
                                         absl::Span<float> out) {
  const CheckpointParameter& described = manifest_->parameters[parameter];
  const DType dtype = described.states.at(state);
  ZERO_ASSIGN_OR_RETURN(OpenFile * file, FileAt(place.file));
  const int64_t begin = file->begins.at(CheckpointTensorName(state, described)) +
                        (first - place.first) * SizeOf(dtype);
  if (dtype == DType::kF32) {
    return file->reader.ReadAt(
        begin, absl::MakeSpan(reinterpret_cast<char*>(out.data()), out.size() * sizeof(float)));
  }
  narrow_.resize(std::min(out.size(), kNarrowElements));
  for (size_t done = 0; done < out.size();) {
    const size_t n = std::min(out.size() - done, narrow_.size());
    ZERO_RETURN_IF_ERROR(file->reader.ReadAt(
        begin + static_cast<int64_t>(done) * 2,
        absl::MakeSpan(reinterpret_cast<char*>(narrow_.data()), n * sizeof(uint16_t))));
    for (size_t i = 0; i < n; ++i) {
      out[done + i] = dtype == DType::kBF16 ? FloatFromBF16(narrow_[i]) : FloatFromF16(narrow_[i]);
    }
    done += n;
  }
  return absl::OkStatus();
}

int64_t CheckpointReader::BytesOfAll() const {
  int64_t bytes = 0;
  for (const CheckpointFile& file : manifest_->files) bytes += file.bytes;
  return bytes;
}

absl::Status CheckpointReader::Verify(const Progress& progress) {
  const int64_t total = BytesOfAll();
  int64_t before = 0;
  for (size_t f = 0; f < manifest_->files.size(); ++f) {
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<OpenFile> file, OpenAt(f));
    ZERO_RETURN_IF_ERROR(file->reader.Verify([&](int64_t done, int64_t) {
      if (progress) progress(before + done, total);
    }));
    before += manifest_->files[f].bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, int64_t>> CheckpointReader::VerifyFinite(
    const Progress& progress) {
  constexpr int64_t kPiece = 1 << 20;  // bytes
  const int64_t total = BytesOfAll();
  std::map<std::string, int64_t> found;
  std::vector<char> bytes(kPiece);
  int64_t before = 0;
  for (size_t f = 0; f < manifest_->files.size(); ++f) {
    // Reads the header, and finds that tensors cover the rest.
    ZERO_ASSIGN_OR_RETURN(const std::unique_ptr<OpenFile> file, OpenAt(f));
    struct Tensor {
      std::string name;
      DType dtype;
      int64_t bytes;
    };
    std::map<int64_t, Tensor> tensors;  // in the order of the file
    for (const CheckpointPiece& piece : manifest_->files[f].pieces) {
      const CheckpointParameter& parameter = manifest_->parameters[piece.parameter];
      for (const auto& [state, dtype] : parameter.states) {
        std::string name = CheckpointTensorName(state, parameter);
        const int64_t begin = file->begins.at(name);
        if (piece.count == 0) continue;
        tensors[begin] = {std::move(name), dtype, piece.count * SizeOf(dtype)};
      }
    }
    for (const auto& [begin, tensor] : tensors) {
      int64_t count = 0;
      for (int64_t done = 0; done < tensor.bytes; done += kPiece) {
        const auto size = static_cast<size_t>(std::min(kPiece, tensor.bytes - done));
        ZERO_RETURN_IF_ERROR(file->reader.ReadAt(begin + done, absl::MakeSpan(bytes.data(), size)));
        count += CountNonFinite({bytes.data(), size}, tensor.dtype);
        if (progress) progress(before + begin + done, total);
      }
      if (count > 0) found[tensor.name] += count;
    }
    before += manifest_->files[f].bytes;
    if (progress) progress(before, total);
  }
  return found;
}

}  // namespace zero
