#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "io/safetensors.h"
#include "tests/catch.h"
#include "tests/io/raw_safetensors.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

using Tensors = std::vector<SafetensorsTensor>;

absl::Span<const char> Bytes(const std::string& text) { return {text.data(), text.size()}; }

template <class T>
absl::Span<const char> BytesOfValues(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

absl::Status WriteWhole(const std::string& path, const Tensors& tensors,
                        absl::Span<const char> data) {
  auto writer = SafetensorsWriter::Create(path, tensors);
  if (!writer.ok()) return writer.status();
  absl::Status appended = (*writer)->Append(data);
  return appended.ok() ? (*writer)->Finish() : appended;
}

TEST_CASE("SafetensorsWriter: w = [1, -2] in fp32 gives the known 72 bytes") {
  TemporaryFolder folder;
  const std::string path = folder.File("w.safetensors");
  CHECK_OK(WriteWhole(path, {{"w", "F32", {2}}}, BytesOfValues<float>({1, -2})));
  const std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ";
  CHECK(ReadFile(path) ==
        std::string("\x38\0\0\0\0\0\0\0", 8) + header + std::string("\0\0\x80\x3f\0\0\0\xc0", 8));
  CHECK(folder.Names() == std::vector<std::string>{"w.safetensors"});
}

TEST_CASE("SafetensorsWriter: metadata comes first and the header is a multiple of 8 bytes") {
  TemporaryFolder folder;
  const std::string path = folder.File("m.safetensors");
  auto writer = SafetensorsWriter::Create(path, {{"a", "U8", {1}}}, {{"format", "pt"}});
  REQUIRE_OK(writer.status());
  CHECK_OK((*writer)->Append(Bytes("x")));
  CHECK_OK((*writer)->Finish());
  const std::string bytes = ReadFile(path);
  CHECK_THAT(bytes, ContainsSubstring("{\"__metadata__\":{\"format\":\"pt\"},\"a\":"));
  CHECK((bytes.size() - 1) % 8 == 0);
}

TEST_CASE("SafetensorsWriter: the given order is kept, the sorted one goes by dtype, then name") {
  TemporaryFolder folder;
  const Tensors tensors = {{"b", "BF16", {1}}, {"z", "F32", {1}}, {"a", "F32", {1}},
                           {"c", "F16", {1}},  {"i", "I64", {1}}, {"u", "BOOL", {1}}};
  const auto order_of = [&](SafetensorsOrder order) {
    auto writer = SafetensorsWriter::Create(folder.File("o"), tensors, {}, order);
    std::string names;
    for (const SafetensorsTensor& tensor : (*writer)->tensors()) names += tensor.name;
    return names;
  };
  CHECK(order_of(SafetensorsOrder::kGiven) == "bzaciu");
  CHECK(order_of(SafetensorsOrder::kSorted) == "iazbcu");
}

TEST_CASE("SafetensorsWriter: fp32 and bf16 tensors come back bit for bit") {
  TemporaryFolder folder;
  const std::string path = folder.File("r.safetensors");
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
  // More than one chunk of the reader.
  for (int i = 0; i < 70'001; ++i) {
    wide.push_back(static_cast<float>(i) * -0.37f);
    narrow.push_back(static_cast<uint16_t>(i * 7919));
  }
  auto writer = SafetensorsWriter::Create(
      path, {{"narrow", "BF16", {70'001}}, {"wide", "F32", {7, 1, 10'000}}, {"tail", "F32", {1}}});
  REQUIRE_OK(writer.status());
  CHECK_OK((*writer)->Write("wide", 0, BytesOfValues(wide).subspan(0, 280'000)));
  CHECK_OK((*writer)->Write("tail", 0, BytesOfValues(wide).subspan(280'000)));
  CHECK_OK((*writer)->Append(BytesOfValues(narrow)));
  CHECK_OK((*writer)->Finish());

  auto file = SafetensorsFile::Open(path);
  REQUIRE_OK(file.status());
  std::vector<float> read(70'000);
  CHECK_OK(file->Read("wide", 0, absl::MakeSpan(read)));
  CHECK(std::equal(read.begin(), read.end(), wide.begin()));
  CHECK_OK(file->Read("wide", 69'998, absl::MakeSpan(read.data(), 2)));
  CHECK(read[1] == wide[69'999]);
  read.resize(70'000);
  CHECK_OK(file->Read("narrow", 1, absl::MakeSpan(read)));
  int wrong = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    const uint32_t want = static_cast<uint32_t>(narrow[i + 1]) << 16;
    uint32_t got = 0;
    std::memcpy(&got, &read[i], 4);
    wrong += got != want;
  }
  CHECK(wrong == 0);
}

TEST_CASE("SafetensorsWriter: empty and scalar tensors, and no tensor at all, come back") {
  TemporaryFolder folder;
  const std::string path = folder.File("e.safetensors");
  CHECK_OK(WriteWhole(path, {{"none", "F32", {0, 5}}, {"one", "F32", {}}, {"end", "BF16", {0}}},
                      BytesOfValues<float>({2.5f})));
  auto file = SafetensorsFile::Open(path);
  REQUIRE_OK(file.status());
  CHECK(file->tensors().size() == 3);
  float value = 0;
  CHECK_OK(file->Read("one", 0, absl::MakeSpan(&value, 1)));
  CHECK(value == 2.5f);
  CHECK_OK(file->Read("none", 0, {}));
  CHECK((*file->Find("none"))->elements() == 0);
  CHECK((*file->Find("one"))->elements() == 1);

  CHECK_OK(WriteWhole(path, {}, {}));
  CHECK(ReadFile(path) == RawFile("{}      "));
  CHECK_OK(SafetensorsFile::Open(path).status());
}

TEST_CASE("SafetensorsWriter: names with quotes, control characters and UTF-8 come back") {
  TemporaryFolder folder;
  const std::string path = folder.File("n.safetensors");
  const std::vector<std::string> names = {"a\"b\\c/d", "tab\tnew\nline\x01",
                                          "größe.λ.重み.🙂", "", std::string("nul\0nul", 7)};
  Tensors tensors;
  for (const std::string& name : names) tensors.push_back({name, "U8", {1}});
  CHECK_OK(WriteWhole(path, tensors, Bytes("12345")));
  auto file = SafetensorsFile::Open(path);
  REQUIRE_OK(file.status());
  for (size_t i = 0; i < names.size(); ++i) {
    char byte = 0;
    CHECK_OK(file->ReadBytes(names[i], 0, absl::MakeSpan(&byte, 1)));
    CHECK(byte == "12345"[i]);
  }
}

TEST_CASE("SafetensorsWriter: lists that no file can hold are refused by name") {
  TemporaryFolder folder;
  const auto refused = [&](const Tensors& tensors, const std::string& why) {
    const absl::Status status = SafetensorsWriter::Create(folder.File("bad"), tensors).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()),
               ContainsSubstring(folder.File("bad")) && ContainsSubstring(why));
  };
  refused({{"a", "F32", {1}}, {"a", "F32", {2}}}, "tensor 'a' is listed twice");
  refused({{"__metadata__", "F32", {1}}}, "a reserved name");
  refused({{"a", "f32", {1}}}, "tensor 'a': unknown dtype 'f32'");
  refused({{"a", "F32", {-1}}}, "negative dimension -1");
  refused({{"a", "F32", {int64_t{1} << 32, int64_t{1} << 32}}}, "overflows 64 bits");
  refused({{"a", "U8", {int64_t{1} << 59}},
           {"b", "U8", {int64_t{1} << 59}},
           {"big", "F4", {int64_t{1} << 60, 0}},
           {"c", "F4", {3}}},
          "not a whole number of bytes");
  refused({{"\xff\xfe", "F32", {1}}}, "not UTF-8");
  refused({{"a", "U8", std::vector<int64_t>(65, 1)}}, "more than 64 dimensions");
  CHECK(folder.Names().empty());
}

TEST_CASE("SafetensorsWriter: Finish names the first byte that is missing") {
  TemporaryFolder folder;
  auto writer = SafetensorsWriter::Create(folder.File("f"), {{"a", "F32", {2}}, {"b", "F32", {4}}});
  REQUIRE_OK(writer.status());
  CHECK_OK((*writer)->Append(Bytes("12345678abcd")));
  CHECK_OK((*writer)->Write("b", 8, Bytes("12345678")));
  const absl::Status missing = (*writer)->Finish();
  CHECK(missing.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(missing.message()),
             ContainsSubstring("byte 4 of 16 of tensor 'b' was never written"));
  CHECK_OK((*writer)->Append(Bytes("efgh")));
  CHECK_OK((*writer)->Finish());
  CHECK((*writer)->Finish().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_OK(SafetensorsFile::Open(folder.File("f")).status());
}

TEST_CASE("SafetensorsWriter: bytes written twice or outside of a tensor are refused") {
  TemporaryFolder folder;
  auto writer = SafetensorsWriter::Create(folder.File("f"), {{"a", "U8", {4}}, {"b", "U8", {8}}});
  REQUIRE_OK(writer.status());
  CHECK_OK((*writer)->Write("b", 2, Bytes("23")));
  for (int64_t first : {1, 2, 3}) {
    CAPTURE(first);
    const absl::Status twice = (*writer)->Write("b", first, Bytes("xx"));
    CHECK(twice.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(twice.message()), ContainsSubstring("tensor 'b'"));
  }
  CHECK((*writer)->Write("b", 7, Bytes("xx")).code() == absl::StatusCode::kOutOfRange);
  CHECK((*writer)->Write("b", -1, Bytes("x")).code() == absl::StatusCode::kOutOfRange);
  CHECK((*writer)->Write("c", 0, Bytes("x")).code() == absl::StatusCode::kNotFound);
  CHECK((*writer)->Append(Bytes("0123456789abc")).code() == absl::StatusCode::kOutOfRange);
  CHECK_OK((*writer)->Write("b", 4, Bytes("4567")));
  CHECK_OK((*writer)->Append(Bytes("abcd01")));
  CHECK_OK((*writer)->Finish());
  CHECK_THAT(ReadFile(folder.File("f")), Catch::Matchers::EndsWith("abcd01234567"));
}

TEST_CASE("SafetensorsWriter: several threads may write the pieces of one file", "[thread]") {
  TemporaryFolder folder;
  auto writer = SafetensorsWriter::Create(folder.File("t"), {{"a", "U8", {4000}}});
  REQUIRE_OK(writer.status());
  std::vector<absl::Status> results(4);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const std::string piece(10, static_cast<char>('a' + rank));
      for (int64_t i = 0; i < 100 && results[rank].ok(); ++i) {
        results[rank] =
            (*writer)->Write("a", (i * 4 + static_cast<int64_t>(rank)) * 10, Bytes(piece));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) CHECK_OK(result);
  CHECK_OK((*writer)->Finish());
  CHECK_THAT(ReadFile(folder.File("t")),
             Catch::Matchers::EndsWith("aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd"));
}

TEST_CASE("SafetensorsWriter: the old file stays until Finish, and for good without it") {
  TemporaryFolder folder;
  const std::string path = folder.File("old");
  WriteFile(path, "old");
  {
    auto writer = SafetensorsWriter::Create(path, {{"a", "U8", {4}}});
    REQUIRE_OK(writer.status());
    CHECK_OK((*writer)->Append(Bytes("1234")));
    CHECK(ReadFile(path) == "old");
    CHECK(folder.Names().size() == 2);
  }
  CHECK(ReadFile(path) == "old");
  CHECK(folder.Names().size() == 1);
  CHECK_OK(WriteWhole(path, {{"a", "U8", {4}}}, Bytes("1234")));
  CHECK_OK(SafetensorsFile::Open(path).status());
  CHECK(folder.Names().size() == 1);
}

TEST_CASE("SafetensorsWriter: a device or folder in the target's place is not replaced") {
  TemporaryFolder folder;
  for (const std::string& path : {folder.path(), std::string("/dev/full")}) {
    CAPTURE(path);
    CHECK(SafetensorsWriter::Create(path, {}).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
  CHECK(folder.Names().empty());
}

TEST_CASE("SafetensorsWriter: a folder that is absent or not writable is named") {
  TemporaryFolder folder;
  const absl::Status absent =
      SafetensorsWriter::Create(folder.File("no/f"), {{"a", "U8", {1}}}).status();
  CHECK(absent.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(absent.message()), ContainsSubstring(folder.File("no/f")) &&
                                                ContainsSubstring("No such file or directory"));

  const bool root = geteuid() == 0;
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  if (root) REQUIRE(seteuid(65534) == 0);  // permissions do not bind root
  const absl::Status status =
      SafetensorsWriter::Create(folder.File("f"), {{"a", "U8", {1}}}).status();
  if (root) REQUIRE(seteuid(0) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  CHECK(status.code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring(folder.File("f")) && ContainsSubstring("Permission denied"));
  CHECK(folder.Names().empty());
}

TEST_CASE("SafetensorsWriter: a file past the size limit leaves nothing behind") {
  TemporaryFolder folder;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  rlimit small = old;
  small.rlim_cur = 4096;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  absl::Status first;
  absl::Status again;
  absl::Status finished;
  {
    auto writer = SafetensorsWriter::Create(folder.File("f"), {{"big", "U8", {10'000}}});
    if (writer.ok()) {
      first = (*writer)->Append(Bytes(std::string(10'000, 'x')));
      again = (*writer)->Write("big", 0, Bytes("x"));
      finished = (*writer)->Finish();
    }
  }
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
  CHECK(first.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(first.message()),
             ContainsSubstring(folder.File("f")) && ContainsSubstring("tensor 'big'") &&
                 ContainsSubstring("10000 bytes") && ContainsSubstring("File too large"));
  CHECK(again == first);
  CHECK(finished == first);
  CHECK(folder.Names().empty());
}

TEST_CASE("SafetensorsWriter: a full disk leaves nothing behind and the old file as it was") {
  TemporaryFolder folder;
  if (mount("zero_test", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    WARN("a small tmpfs cannot be mounted here: not tried");
    return;
  }
  const std::string path = folder.File("f");
  CHECK_OK(WriteWhole(path, {{"a", "U8", {4}}}, Bytes("1234")));
  const std::string before = ReadFile(path);
  const absl::Status status =
      WriteWhole(path, {{"big", "U8", {100'000}}}, Bytes(std::string(100'000, 'x')));
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(path) &&
                                                ContainsSubstring("No space left on device") &&
                                                ContainsSubstring("tensor 'big'"));
  CHECK(ReadFile(path) == before);
  CHECK(folder.Names().size() == 1);
  CHECK(umount(folder.path().c_str()) == 0);
}

}  // namespace
}  // namespace zero
