#include <sys/stat.h>

#include "io/safetensors.h"

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/io/raw_safetensors.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

// Writes `bytes` to a file and opens it.
absl::StatusOr<SafetensorsFile> OpenBytes(const TemporaryFolder& folder, const std::string& bytes) {
  WriteFile(folder.File("f.safetensors"), bytes);
  return SafetensorsFile::Open(folder.File("f.safetensors"));
}

TEST_CASE("SafetensorsFile: what other writers produce loads") {
  TemporaryFolder folder;
  const std::string a = Entry("a", "F32", "2", "0,8");
  const std::string data(8, '\x01');
  const auto loads = [&](const std::string& bytes, size_t tensors) {
    const auto file = OpenBytes(folder, bytes);
    CHECK_OK(file.status());
    if (file.ok()) CHECK(file->tensors().size() == tensors);
  };
  loads(RawFile(std::string("{") + a + "}", data), 1);  // a header of 57 bytes
  loads(RawFile(std::string("{") + a + "}" + std::string(199, ' '), data), 1);
  loads(RawFile(std::string("{") + Entry("b", "F32", "1", "4,8") + "," +
                    Entry("a", "F32", "1", "0,4") + "}",
                data),
        2);
  loads(RawFile(std::string("{") + Entry("s", "F32", "", "0,4") + "}", "1234"), 1);
  loads(RawFile(std::string("{") + Entry("e", "F32", "0,3", "0,0") + "," + a + "," +
                    Entry("m", "F16", "0", "8,8") + "}",
                data),
        3);
  loads(RawFile("{\"__metadata__\":{}," + a + "}", data), 1);
  loads(RawFile("{\"__metadata__\":null," + a + "}", data), 1);
  loads(RawFile("{\"__metadata__\":{\"k\":\"v\"}}"), 0);
  loads(RawFile("{}"), 0);
  loads(RawFile("{" + Entry("e", "F32", "0", "0,0") + "}"), 1);
  loads(RawFile("{\"a\":{\"x\":{\"dtype\":[[1],{}]},\"dtype\":\"F32\",\"y\":-1.5e3,\"shape\":[2],"
                "\"data_offsets\":[0,8],\"z\":null}}",
                data),
        1);
  loads(RawFile(std::string("{") + Entry("i", "I64", "1", "0,8") + "," +
                    Entry("b", "BOOL", "3", "8,11") + std::string(",") +
                    Entry("f", "F8_E4M3", "2,2", "11,15") + std::string(",") +
                    Entry("q", "F4", "4", "15,17") + "}",
                std::string(17, 'x')),
        4);
}

TEST_CASE("SafetensorsFile: lists tensors in the order of their bytes, with metadata") {
  TemporaryFolder folder;
  const auto file = OpenBytes(
      folder, RawFile("{\"__metadata__\":{\"format\":\"pt\"}," + Entry("b", "BF16", "2,1", "4,8") +
                          std::string(",") + Entry("a", "F32", "", "0,4") + "}",
                      "12345678"));
  REQUIRE_OK(file.status());
  CHECK(file->metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file->tensors().size() == 2);
  CHECK(file->tensors()[0].name == "a");
  const SafetensorsTensor& b = file->tensors()[1];
  CHECK(b.dtype == "BF16");
  CHECK(b.shape == std::vector<int64_t>{2, 1});
  CHECK(b.begin == 4);
  CHECK(b.end == 8);
  char raw[2] = {};
  CHECK_OK(file->ReadBytes("b", 1, absl::MakeSpan(raw)));
  CHECK(std::string(raw, 2) == "67");
}

TEST_CASE("SafetensorsFile: reads F32, BF16 and F16 elements from any first one") {
  TemporaryFolder folder;
  const std::string data(
      "\0\0\x80\x3f\0\0\0\xc0"
      "\x80\x3f\x00\xc0"
      "\x00\x3c\x00\xc0\x01\x00",
      18);
  const auto file =
      OpenBytes(folder, RawFile(std::string("{") + Entry("w", "F32", "2", "0,8") +
                                    std::string(",") + Entry("b", "BF16", "2", "8,12") + "," +
                                    Entry("h", "F16", "3", "12,18") + "}",
                                data));
  REQUIRE_OK(file.status());
  for (const char* name : {"w", "b", "h"}) {
    CAPTURE(name);
    float both[2] = {};
    CHECK_OK(file->Read(name, 0, absl::MakeSpan(both)));
    CHECK(both[0] == 1);
    CHECK(both[1] == -2);
    float second = 0;
    CHECK_OK(file->Read(name, 1, absl::MakeSpan(&second, 1)));
    CHECK(second == -2);
  }
  float tiny = 0;
  CHECK_OK(file->Read("h", 2, absl::MakeSpan(&tiny, 1)));
  CHECK(tiny == 0x1p-24f);
}

TEST_CASE("SafetensorsFile: reads that the tensor cannot serve are refused by name") {
  TemporaryFolder folder;
  const auto file =
      OpenBytes(folder, RawFile(std::string("{") + Entry("w", "F32", "2", "0,8") +
                                    std::string(",") + Entry("i", "I32", "2", "8,16") + "}",
                                std::string(16, 'x')));
  REQUIRE_OK(file.status());
  float out[3] = {};
  CHECK(file->Read("w", 0, absl::MakeSpan(out)).code() == absl::StatusCode::kOutOfRange);
  CHECK(file->Read("w", 3, {}).code() == absl::StatusCode::kOutOfRange);
  CHECK(file->Read("w", -1, absl::MakeSpan(out, 1)).code() == absl::StatusCode::kOutOfRange);
  const absl::Status dtype = file->Read("i", 0, absl::MakeSpan(out, 1));
  CHECK(dtype.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(dtype.message()),
             ContainsSubstring("tensor 'i' is I32") && ContainsSubstring(file->path()));
  const absl::Status absent = file->Read("v", 0, absl::MakeSpan(out, 1));
  CHECK(absent.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(absent.message()), ContainsSubstring("no tensor 'v' among 2 tensors"));
}

TEST_CASE("SafetensorsFile: a file cut short after Open is data loss, not garbage") {
  TemporaryFolder folder;
  const auto file = OpenBytes(
      folder, RawFile(std::string("{") + Entry("w", "F32", "2", "0,8") + "}", "12345678"));
  REQUIRE_OK(file.status());
  std::filesystem::resize_file(file->path(), 69);
  float out[2] = {};
  CHECK(file->Read("w", 0, absl::MakeSpan(out)).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("SafetensorsFile: a file that is not there is kNotFound with its path") {
  const absl::Status status = SafetensorsFile::Open("/no/such/file").status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("/no/such/file"));
}

TEST_CASE("SafetensorsFile: 5,000 tensors and a name of 1 MiB load") {
  TemporaryFolder folder;
  std::string header = std::string("{") + Entry(std::string(1 << 20, 'n'), "U8", "1", "0,1");
  for (int i = 1; i < 5000; ++i) {
    header += ",";
    header += Entry(absl::StrCat("layers.", i, ".weight"), "U8", "1", absl::StrCat(i, ",", i + 1));
  }
  const auto file = OpenBytes(folder, RawFile(header + "}", std::string(5000, 'x')));
  REQUIRE_OK(file.status());
  CHECK(file->tensors().size() == 5000);
}

}  // namespace
}  // namespace zero
