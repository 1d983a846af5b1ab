// Reading checkpoints, whole and damaged.
#include "zero/save/checkpoint_reader.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "io/checksummed_file.h"
#include "io/crc32c.h"
#include "io/folder.h"
#include "tests/catch.h"
#include "tests/io/raw_safetensors.h"
#include "tests/io/temporary_folder.h"
#include "tests/zero/checkpoint_fixture.h"

namespace zero::test {
namespace {

// A checkpoint of `ranks` files in `folder`.
CheckpointManifest Make(const std::string& folder, DType dtype, int ranks) {
  CheckpointManifest manifest = SmallCheckpoint(dtype);
  CutIntoFiles(manifest, ranks);
  REQUIRE_OK(WriteCheckpoint(folder, manifest));
  return manifest;
}

// Replaces a file and what the manifest says about its bytes.
void Replace(const std::string& folder, CheckpointManifest& manifest, size_t file,
             const std::string& content) {
  CheckpointFile& described = manifest.files[file];
  WriteFile(folder + "/" + described.name, content);
  described.bytes = static_cast<int64_t>(content.size());
  described.checksums = {Crc32c(0, content)};
  REQUIRE_OK(WriteWhole(folder + "/manifest.json", FormatManifest(manifest)));
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("Checkpoint reader: every run of every state is what was written", "[save]") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int ranks : {1, 3, 8, 40}) {
      const TemporaryFolder folder;
      CheckpointManifest manifest = SmallCheckpoint(dtype);
      // A trainable one without a master of its own.
      manifest.parameters[1].states[kMasterState] = dtype;
      CutIntoFiles(manifest, ranks);
      REQUIRE_OK(WriteCheckpoint(folder.path(), manifest));
      auto reader = CheckpointReader::Open(folder.path());
      REQUIRE_OK(reader.status());
      CheckpointReader moved = *std::move(reader);
      CHECK(moved.manifest().step == 100);
      CHECK(moved.folder() == folder.path());
      for (size_t p = 0; p < manifest.parameters.size(); ++p) {
        const int64_t elements = ElementCount(manifest.parameters[p]);
        for (const auto& [state, type] : manifest.parameters[p].states) {
          for (int64_t first = 0; first <= elements; ++first) {
            for (const int64_t count : {int64_t{0}, int64_t{1}, elements - first}) {
              if (first + count > elements) continue;
              std::vector<float> values(static_cast<size_t>(count));
              REQUIRE_OK(moved.Read(p, state, first, absl::MakeSpan(values)));
              bool same = true;
              for (int64_t i = 0; i < count; ++i) {
                same = same && values[i] == ExactValue(state, p, first + i);
              }
              CHECK(same);
            }
          }
        }
      }
      CHECK_OK(moved.Verify(nullptr));
    }
  }
}

TEST_CASE("Checkpoint reader: pieces larger than a block are read and verified", "[save]") {
  const TemporaryFolder folder;
  CheckpointManifest manifest = SmallCheckpoint(DType::kBF16);
  manifest.parameters[0].shape = {1000, 1000};
  manifest.parameters[2].shape = {1000, 500};  // frozen, 16 bits
  CutIntoFiles(manifest, 2);
  REQUIRE_OK(WriteCheckpoint(folder.path(), manifest));
  auto reader = CheckpointReader::Open(folder.path());
  REQUIRE_OK(reader.status());
  std::vector<float> values(1'000'000);
  REQUIRE_OK(reader->Read(0, kMoment2State, 0, absl::MakeSpan(values)));
  bool same = true;
  for (int64_t i = 0; i < 1'000'000; ++i) same = same && values[i] == ExactValue("moment2", 0, i);
  CHECK(same);
  values.resize(500'000);
  REQUIRE_OK(reader->Read(2, kWeightState, 0, absl::MakeSpan(values)));
  for (int64_t i = 0; i < 500'000; ++i) same = same && values[i] == ExactValue("weight", 2, i);
  CHECK(same);
  // Progress comes to the end of all files.
  int64_t last = 0;
  int64_t total = 0;
  bool rises = true;
  CHECK_OK(reader->Verify([&](int64_t done, int64_t all) {
    rises = rises && done > last;
    last = done;
    total = all;
  }));
  CHECK(rises);
  CHECK(total == manifest.files[0].bytes + manifest.files[1].bytes);
  CHECK(last == total);
}

TEST_CASE("Checkpoint reader: what is not there is named", "[save]") {
  const TemporaryFolder folder;
  Make(folder.path(), DType::kBF16, 2);
  auto reader = CheckpointReader::Open(folder.path());
  REQUIRE_OK(reader.status());
  std::vector<float> values(8);
  const absl::Span<float> out = absl::MakeSpan(values);
  absl::Status status = reader->Read(2, kMasterState, 0, out);
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(Message(status), ContainsSubstring("'layer.frozen' has no master"));
  CHECK(absl::IsNotFound(reader->Read(0, "moment3", 0, out)));
  CHECK(absl::IsInvalidArgument(reader->Read(5, kMasterState, 0, out)));
  CHECK(absl::IsInvalidArgument(reader->Read(-1, kMasterState, 0, out)));
  CHECK(absl::IsOutOfRange(reader->Read(1, kMasterState, 0, out)));
  CHECK(absl::IsOutOfRange(reader->Read(0, kMasterState, 23, out)));
  CHECK(absl::IsOutOfRange(reader->Read(0, kMasterState, -1, out)));
  CHECK(absl::IsOutOfRange(reader->Read(0, kMasterState, INT64_MAX, out)));
  CHECK_OK(reader->Read(0, kMasterState, 22, out));
}

TEST_CASE("Checkpoint reader: files that are missing or of another size are refused", "[save]") {
  const TemporaryFolder folder;
  const CheckpointManifest manifest = Make(folder.path(), DType::kBF16, 3);
  const std::string path = folder.File(manifest.files[1].name);
  const std::string content = ReadFile(path);
  for (const std::string& other :
       {content.substr(0, content.size() - 1), content + "x", std::string()}) {
    WriteFile(path, other);
    const auto reader = CheckpointReader::Open(folder.path());
    CHECK(absl::IsDataLoss(reader.status()));
    CHECK_THAT(Message(reader.status()), ContainsSubstring(path));
  }
  std::filesystem::remove(path);
  const auto reader = CheckpointReader::Open(folder.path());
  CHECK(absl::IsDataLoss(reader.status()));
  CHECK_THAT(Message(reader.status()), ContainsSubstring(path + ": is missing"));
  std::filesystem::remove(folder.File("manifest.json"));
  CHECK(absl::IsNotFound(CheckpointReader::Open(folder.path()).status()));
}

TEST_CASE("Checkpoint reader: any byte of a file that has changed is noticed", "[save]") {
  const TemporaryFolder folder;
  const CheckpointManifest manifest = Make(folder.path(), DType::kF16, 2);
  const std::string path = folder.File(manifest.files[1].name);
  const std::string content = ReadFile(path);
  for (size_t at = 0; at < content.size(); ++at) {
    std::string other = content;
    other[at] = static_cast<char>(other[at] ^ 0x10);
    WriteFile(path, other);
    auto reader = CheckpointReader::Open(folder.path());
    REQUIRE_OK(reader.status());
    REQUIRE(absl::IsDataLoss(reader->Verify(nullptr)));
    std::vector<float> values(30);
    REQUIRE(absl::IsDataLoss(reader->Read(0, kMasterState, 0, absl::MakeSpan(values))));
    // What lies in the other file can still be read.
    REQUIRE_OK(reader->Read(0, kMasterState, 0, absl::MakeSpan(values.data(), 15)));
  }
}

TEST_CASE("Checkpoint reader: files hold the tensors that the manifest says", "[save]") {
  const TemporaryFolder folder;
  CheckpointManifest manifest = SmallCheckpoint(DType::kF32);
  manifest.parameters = {{"a", "u", {2}, DType::kF32, true, {}, {{"master", DType::kF32}}}};
  CutIntoFiles(manifest, 1);
  REQUIRE_OK(WriteCheckpoint(folder.path(), manifest));
  const std::string data(8, '\0');
  const auto refused = [&](const std::string& content, const std::string& wanted) {
    Replace(folder.path(), manifest, 0, content);
    auto reader = CheckpointReader::Open(folder.path());
    REQUIRE_OK(reader.status());
    std::vector<float> values(2);
    for (const absl::Status& status :
         {reader->Verify(nullptr), reader->Read(0, kMasterState, 0, absl::MakeSpan(values))}) {
      CHECK(absl::IsDataLoss(status));
      CHECK_THAT(Message(status), ContainsSubstring(wanted));
      CHECK_THAT(Message(status), ContainsSubstring(folder.File(manifest.files[0].name)));
    }
  };
  const std::string right = Entry("master/a", "F32", "2", "0,8");
  Replace(folder.path(), manifest, 0, RawFile("{" + right + "}", data));
  CHECK_OK(CheckpointReader::Open(folder.path())->Verify(nullptr));

  refused(RawFile("{" + Entry("master/b", "F32", "2", "0,8") + "}", data),
          "has no tensor 'master/a'");
  refused(RawFile("{" + Entry("master/a", "BF16", "2", "0,4") + "}", data.substr(4)),
          "tensor 'master/a' is not F32 [2]");
  refused(RawFile("{" + Entry("master/a", "F32", "2,1", "0,8") + "}", data), "is not F32 [2]");
  refused(RawFile("{" + Entry("master/a", "F32", "1", "0,4") + "}", data.substr(4)),
          "is not F32 [2]");
  refused(RawFile("{" + right + "," + Entry("moment1/a", "F32", "2", "8,16") + "}", data + data),
          "tensor 'moment1/a' is not in the manifest");
  refused(RawFile("{" + right + "}", data + "x"), "the file");
  refused(RawFile("{" + right, data), "the header is not valid JSON");
  refused(LengthBytes(1000) + "{}", "its header has 1000 bytes; at most 2");
  refused(LengthBytes(~uint64_t{0}) + "{}", "its header has");
}

}  // namespace
}  // namespace zero::test
