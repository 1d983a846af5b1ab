// Every way in which a safetensors file can be wrong: refused with path, tensor and numbers.
#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/io/raw_safetensors.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

class Refused {
 public:
  // `bytes` must be refused with `code` and a message that holds the path and `why`.
  void operator()(const std::string& bytes, const std::string& why,
                  absl::StatusCode code = absl::StatusCode::kDataLoss) {
    const std::string path = folder_.File("f.safetensors");
    WriteFile(path, bytes);
    const absl::Status status = SafetensorsFile::Open(path).status();
    CAPTURE(why, status.ToString());
    CHECK(status.code() == code);
    CHECK_THAT(std::string(status.message()), ContainsSubstring(path) && ContainsSubstring(why));
  }

 private:
  TemporaryFolder folder_;
};

const absl::StatusCode kOther = absl::StatusCode::kInvalidArgument;
const std::string kData(8, '\x01');

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return std::string("{") + Entry("w", dtype, shape, offsets) + "}";
}

TEST_CASE("Broken file: other kinds of file are named for what they are") {
  Refused refused;
  refused(
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 9976570304\n",
      "git-lfs pointer", kOther);
  refused("<!DOCTYPE html><html><body>404</body></html>", "HTML", kOther);
  refused("\n <HTML><head></head>", "HTML", kOther);
  refused("<?xml version=\"1.0\"?><Error/>", "XML", kOther);
  refused("{\"error\": \"Repository not found\"}", "JSON text", kOther);
  refused("GGUF" + std::string(60, '\0'), "GGUF", kOther);
  refused("\x80\x02\x8a\x0a" + std::string(60, 'l'), "pickle", kOther);
  refused(std::string("PK\x03\x04\x00\x00\x08\x08\x00\x00", 10) + std::string(60, 'z'),
          "zip archive", kOther);
  // The first eight bytes of this one are a length below the limit.
  refused(std::string("PK\x03\x04\x00\x00\x00\x00", 8) + std::string(60, 'z'), "zip archive",
          kOther);
}

TEST_CASE("Broken file: lengths that the file cannot hold are refused with both numbers") {
  Refused refused;
  refused("", "the file has 0 bytes");
  refused("1234567", "the file has 7 bytes");
  refused(LengthBytes(0), "the header of 0 bytes");
  refused(LengthBytes(0) + kData, "the header of 0 bytes");
  refused(LengthBytes(100) + "{}", "100 bytes, but the file has 10 in all");
  refused(LengthBytes(3) + "{}", "3 bytes, but the file has 10 in all");
  refused(LengthBytes(100'000'001) + "{}", "100000001 bytes; at most 100000000");
  refused(LengthBytes(UINT64_MAX) + "{}", "18446744073709551615 bytes");
  refused(LengthBytes(uint64_t{1} << 63) + "{}", "9223372036854775808 bytes");
}

TEST_CASE("Broken file: bytes that are missing or too many are counted") {
  Refused refused;
  const std::string whole = RawFile(One("F32", "2", "0,8"), kData);
  refused(whole.substr(0, whole.size() - 1), "take 8 bytes after the header, but the file has 7");
  refused(whole.substr(0, whole.size() - 8), "but the file has 0: it is cut short");
  refused(whole + "x", "but the file has 9: something was appended");
  refused(RawFile("{}", "x"), "take 0 bytes after the header, but the file has 1");
}

TEST_CASE("Broken file: ranges that lie are refused with the tensor's name") {
  Refused refused;
  const std::string a = Entry("a", "F32", "1", "0,4");
  refused(RawFile(std::string("{") + a + std::string(",") + Entry("w", "F32", "1", "5,9") + "}",
                  kData + "x"),
          "tensor 'w': data_offsets [5, 9] leave a gap: the tensor before ends at byte 4");
  refused(RawFile(std::string("{") + a + std::string(",") + Entry("w", "F32", "1", "2,6") + "}",
                  kData.substr(2)),
          "tensor 'w': data_offsets [2, 6] overlap");
  refused(RawFile(std::string("{") + a + std::string(",") + Entry("w", "F32", "1", "0,4") + "}",
                  "1234"),
          "tensor 'w': data_offsets [0, 4] overlap");
  refused(RawFile(One("F32", "1", "4,8"), kData), "tensor 'w': data_offsets [4, 8] leave a gap");
  refused(RawFile(One("F32", "1", "4,0"), kData), "tensor 'w': data_offsets [4, 0] end too early");
  refused(RawFile(One("F32", "3", "0,8"), kData), "hold 8 bytes, but F32 [3] has 12");
  refused(RawFile(One("F32", "", "0,8"), kData), "hold 8 bytes, but F32 [] has 4");
  refused(RawFile(One("F32", "0", "0,4"), "1234"), "hold 4 bytes, but F32 [0] has 0");
  refused(RawFile(One("F32", "1", "0,0")), "hold 0 bytes, but F32 [1] has 4");
  refused(RawFile(One("F32", "2", "0,9223372036854775807"), kData),
          "hold 9223372036854775807 bytes");
}

TEST_CASE("Broken file: products that overflow do not wrap round to a size that fits") {
  Refused refused;
  refused(RawFile(One("F32", "4294967296,4294967296", "0,0")), "overflows 64 bits");
  refused(RawFile(One("U8", "4294967296,4294967296", "0,0")), "overflows 64 bits");
  refused(RawFile(One("F64", "2305843009213693952", "0,0")), "overflows 64 bits");
  refused(RawFile(One("F32", "0,4294967296,4294967296", "0,0")), "overflows 64 bits");
  refused(RawFile(One("F32", "4294967296,4294967296,0", "0,0")), "overflows 64 bits");
  refused(RawFile(One("F4", "3", "0,1"), "x"), "not a whole number of bytes");
}

TEST_CASE("Broken file: fields of the wrong type are refused with the tensor's name") {
  Refused refused;
  const std::string huge = "9223372036854775808";  // 2^63
  refused(RawFile(One("F12", "2", "0,8"), kData), "tensor 'w': unknown dtype 'F12'");
  refused(RawFile(One("f32", "2", "0,8"), kData), "tensor 'w': unknown dtype 'f32'");
  refused(RawFile(One("F32", "-2", "0,8"), kData), "a dimension of shape is a negative number");
  refused(RawFile(One("F32", "2.0", "0,8"), kData), "a number that is no 64-bit integer");
  refused(RawFile(One("F32", "\"2\"", "0,8"), kData), "a dimension of shape is a string");
  refused(RawFile(One("F32", "[2]", "0,8"), kData), "a dimension of shape is a list");
  refused(RawFile(One("F32", "null", "0,8"), kData), "a dimension of shape is null");
  refused(RawFile(One("F32", huge, "0,8"), kData), "is 9223372036854775808, past 2^63");
  refused(RawFile(One("F32", "2", "0," + huge), kData), "data_offsets is 9223372036854775808");
  refused(RawFile(One("F32", "2", "-1,7"), kData), "data_offsets is a negative number");
  refused(RawFile(One("F32", "2", "0,8.5"), kData), "data_offsets is a number that is no");
  refused(RawFile(One("F32", "2", "0,8,8"), kData), "data_offsets has more than 2 numbers");
  refused(RawFile(One("F32", "2", "8"), kData), "data_offsets has 1 of 2 numbers");
  refused(RawFile(One("F32", "2", ""), kData), "data_offsets has 0 of 2 numbers");
  refused(RawFile("{\"w\":{\"dtype\":4,\"shape\":[2],\"data_offsets\":[0,8]}}", kData),
          "dtype is a number");
  refused(RawFile("{\"w\":{\"dtype\":{},\"shape\":[2],\"data_offsets\":[0,8]}}", kData),
          "dtype is an object");
  refused(RawFile("{\"w\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", kData),
          "shape is a number");
  refused(RawFile("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":\"0\"}}", kData),
          "data_offsets is a string");
  refused(RawFile("{\"w\":{\"shape\":[2],\"data_offsets\":[0,8]}}", kData), "lacks dtype");
  refused(RawFile("{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", kData), "lacks shape");
  refused(RawFile("{\"w\":{\"dtype\":\"F32\",\"shape\":[2]}}", kData),
          "tensor 'w' lacks data_offsets");
  refused(RawFile("{\"w\":{}}"), "tensor 'w' lacks dtype");
  refused(RawFile("{\"w\":[]}"), "tensor 'w' is a list");
  refused(RawFile("{\"w\":null}"), "tensor 'w' is null");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  refused(RawFile(One("U8", ones, "0,1"), "x"), "more than 64 dimensions");
}

TEST_CASE("Broken file: metadata that is not a map of strings is refused") {
  Refused refused;
  refused(RawFile("{\"__metadata__\":{\"step\":5}}"),
          "__metadata__ 'step' is a number, not a string");
  refused(RawFile("{\"__metadata__\":{\"step\":null}}"),
          "__metadata__ 'step' is null, not a string");
  refused(RawFile("{\"__metadata__\":{\"step\":{}}}"), "__metadata__ 'step' is an object");
  refused(RawFile("{\"__metadata__\":{\"step\":[]}}"), "__metadata__ 'step' is a list");
  refused(RawFile("{\"__metadata__\":[]}"), "__metadata__ is a list");
  refused(RawFile("{\"__metadata__\":\"pt\"}"), "__metadata__ is a string");
}

TEST_CASE("Broken file: a key that occurs twice is refused, with equal values too") {
  Refused refused;
  const std::string w = Entry("w", "F32", "2", "0,8");
  refused(RawFile(std::string("{") + w + "," + w + "}", kData), "tensor 'w' occurs twice");
  refused(RawFile(std::string("{") + w + std::string(",") + Entry("w", "F32", "2", "8,16") + "}",
                  kData + kData),
          "tensor 'w' occurs twice");
  refused(
      RawFile(std::string("{") + w + std::string(",") + Entry("\\u0077", "F32", "2", "0,8") + "}",
              kData),
      "tensor 'w' occurs twice");
  refused(
      RawFile("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
              kData),
      "tensor 'w': dtype occurs twice");
  refused(RawFile("{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}"), "__metadata__ 'a' occurs twice");
  refused(RawFile("{\"__metadata__\":{},\"__metadata__\":{}}"), "__metadata__ occurs twice");
}

TEST_CASE("Broken file: a header that is not one JSON object is refused") {
  Refused refused;
  refused(RawFile("[]      "), "does not begin with '{'");
  refused(RawFile(" {}"), "does not begin with '{'");
  refused(RawFile("{"), "not valid JSON at byte 1 of 1");
  refused(RawFile("{\"w\":}"), "not valid JSON");
  refused(RawFile("{},"), "not valid JSON at byte 2 of 3");
  refused(RawFile("{}{}"), "not valid JSON");
  refused(RawFile("{} x"), "not valid JSON");
  refused(RawFile(std::string("{}\0\0\0\0", 6)), "NUL at byte 2 of 6");
  refused(RawFile("{\"\xff\xfe\":{}}"), "not valid JSON");
  refused(RawFile("{\"\xc0\x80\":{}}"), "not valid JSON");
  refused(RawFile("{\"\\ud800\":{}}"), "not valid JSON");
  refused(RawFile("{\"a\nb\":{}}"), "not valid JSON");
  refused(RawFile("{'w':{}}"), "not valid JSON");
  refused(RawFile("{//\n}"), "not valid JSON");
}

TEST_CASE("Broken file: deep nesting is refused without a deep stack") {
  Refused refused;
  std::string brackets = "{\"w\":{\"x\":";
  std::string objects = brackets;
  for (int i = 0; i < 100'000; ++i) {
    brackets += "[";
    objects += "{\"a\":";
  }
  refused(RawFile(brackets), "tensor 'w' nests more than 128 levels");
  refused(RawFile(objects), "tensor 'w' nests more than 128 levels");
  refused(RawFile(std::string(100'000, '[')), "does not begin with '{'");
  refused(RawFile("{\"w\":" + std::string(100'000, '[')), "tensor 'w' is a list");
}

TEST_CASE("Broken file: a long or strange name does not fill the message") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  WriteFile(path, RawFile("{\"" + std::string(1 << 20, 'n') + "\":[]}"));
  const absl::Status status = SafetensorsFile::Open(path).status();
  CHECK(status.message().size() < 400);
  CHECK_THAT(std::string(status.message()), ContainsSubstring("(name of 1048576 bytes)"));
}

TEST_CASE("Broken file: no change of one byte and no cut is ever more than refused") {
  TemporaryFolder folder;
  const std::string path = folder.File("f.safetensors");
  const std::string whole =
      RawFile("{\"__metadata__\":{\"k\":\"v\"}," + Entry("a", "F32", "2", "0,8") + "," +
                  Entry("b", "BF16", "0,1", "8,8") + "}",
              kData);
  int accepted = 0;
  const auto open = [&](const std::string& bytes) {
    WriteFile(path, bytes);
    const auto file = SafetensorsFile::Open(path);
    if (!file.ok()) return;
    ++accepted;
    for (const SafetensorsTensor& tensor : file->tensors()) {
      std::vector<char> raw(static_cast<size_t>(tensor.bytes()));
      CHECK_OK(file->ReadBytes(tensor.name, 0, absl::MakeSpan(raw)));
    }
  };
  for (size_t cut = 0; cut < whole.size(); ++cut) open(whole.substr(0, cut));
  CHECK(accepted == 0);
  for (size_t at = 0; at < whole.size(); ++at) {
    for (char byte : {'\0', ' ', '"', '0', '9', '[', '{', '}', ',', '\x7f', '\xff'}) {
      std::string changed = whole;
      changed[at] = byte;
      open(changed);
    }
  }
  CHECK(accepted > 0);  // other names, other values
}

}  // namespace
}  // namespace zero
