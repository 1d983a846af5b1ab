// SafetensorsFile::Open, on files of any content.
#include <sys/mman.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "io/safetensors.h"
#include "io/safetensors_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/io/raw_safetensors.h"

namespace zero {
namespace {

// A file in memory, opened by its name as any other.
std::string FileOf(const uint8_t* data, size_t size) {
  static const int descriptor = memfd_create("safetensors_fuzz", MFD_CLOEXEC);
  FuzzCheck(descriptor >= 0, "a file in memory can be made");
  FuzzCheck(ftruncate(descriptor, static_cast<off_t>(size)) == 0, "it can be resized");
  FuzzCheck(pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size), "it can be written");
  return absl::StrCat("/proc/self/fd/", descriptor);
}

void CheckTensor(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  std::vector<char> bytes(static_cast<size_t>(tensor.bytes()));
  FuzzCheck(file.ReadBytes(tensor.name, 0, absl::MakeSpan(bytes)).ok(), "every byte can be read");
  FuzzCheck(absl::IsOutOfRange(file.ReadBytes(tensor.name, 1, absl::MakeSpan(bytes))),
            "no byte after the last can be read");
  const bool readable = tensor.dtype == "F32" || tensor.dtype == "BF16" || tensor.dtype == "F16";
  if (!readable) return;
  const int64_t width = tensor.dtype == "F32" ? 4 : 2;
  FuzzCheck(tensor.elements() * width == tensor.bytes(), "elements and bytes agree");
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  FuzzCheck(file.Read(tensor.name, 0, absl::MakeSpan(values)).ok(), "every element can be read");
}

void CheckFile(const SafetensorsFile& file) {
  for (const SafetensorsTensor& tensor : file.tensors()) CheckTensor(file, tensor);
  // What was read can be written, and reads back as the same.
  const SafetensorsHeader header{file.tensors(), file.metadata()};
  const auto text = FormatSafetensorsHeader(header);
  FuzzCheck(text.ok(), "what was read can be written");
  const auto again = ParseSafetensorsHeader(*text);
  FuzzCheck(again.ok(), "what was written can be read");
  FuzzCheck(again->metadata == header.metadata, "metadata comes back");
  FuzzCheck(again->tensors.size() == header.tensors.size(), "every tensor comes back");
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const SafetensorsTensor& a = header.tensors[i];
    const SafetensorsTensor& b = again->tensors[i];
    FuzzCheck(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin &&
                  a.end == b.end,
              "a tensor comes back as it was");
  }
}

}  // namespace
}  // namespace zero

std::vector<std::string> FuzzSeeds() {
  const std::string a = Entry("a", "F32", "2", "0,8");
  const std::string bytes(16, '\x3f');
  return {
      RawFile("{}"),
      RawFile("{" + a + "}  ", bytes.substr(0, 8)),
      RawFile("{\"__metadata__\":{\"format\":\"pt\",\"step\":\"5\"}," + a + "," +
                  Entry("b.weight", "BF16", "2,1,2", "8,16") + "}",
              bytes),
      RawFile("{" + Entry("none", "F16", "0,3", "0,0") + "," + Entry("s", "F16", "", "0,2") +
                  ",\"i\":{\"x\":[1,{\"y\":null}],\"dtype\":\"I64\",\"shape\":[1],"
                  "\"data_offsets\":[2,10]}}",
              bytes.substr(0, 10)),
      RawFile("{\"__metadata__\":null," + Entry("\\u00e9\\n", "F4", "4", "0,2") + "," +
                  Entry("q", "F8_E4M3", "2,2", "2,6") + "}",
              bytes.substr(0, 6)),
  };
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = zero::FileOf(data, size);
  const auto file = zero::SafetensorsFile::Open(path);
  if (file.ok()) {
    ++fuzz_counts.accepted;
    zero::CheckFile(*file);
    return 0;
  }
  ++fuzz_counts.refused;
  FuzzCheck(absl::IsInvalidArgument(file.status()) || absl::IsDataLoss(file.status()),
            "a refusal is kInvalidArgument or kDataLoss");
  const std::string message(file.status().message());
  FuzzCheck(message.find(path) == 0, "a refusal names the path");
  FuzzCheck(message.size() < 2000, "a refusal is short");
  return 0;
}
