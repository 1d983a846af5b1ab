#include "io/safetensors_image.h"

#include "io/posix_file.h"
#include "tests/catch.h"
#include "tests/io/raw_safetensors.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

TEST_CASE("SafetensorsImage: start and offsets are those of the file that a writer makes") {
  TemporaryFolder folder;
  const std::vector<SafetensorsTensor> tensors = {
      {"b", "BF16", {3}}, {"a", "F32", {2}}, {"none", "F32", {0}}};
  for (SafetensorsOrder order : {SafetensorsOrder::kGiven, SafetensorsOrder::kSorted}) {
    const auto image = PlanSafetensors(tensors, {{"format", "pt"}}, order);
    REQUIRE_OK(image.status());
    auto writer = SafetensorsWriter::Create(folder.File("f"), tensors, {{"format", "pt"}}, order);
    REQUIRE_OK(writer.status());
    CHECK_OK((*writer)->Append(std::string("0123456789abcd")));
    CHECK_OK((*writer)->Finish());
    CHECK(ReadFile(folder.File("f")) == image->start + "0123456789abcd");
    CHECK(image->data_start == static_cast<int64_t>(image->start.size()));
    CHECK(image->bytes == image->data_start + 14);
    CHECK(image->tensors.size() == 3);
    const auto file = SafetensorsFile::Open(folder.File("f"));
    REQUIRE_OK(file.status());
    for (const SafetensorsTensor& tensor : image->tensors) {
      const auto found = file->Find(tensor.name);
      REQUIRE_OK(found.status());
      CHECK((*found)->begin == tensor.begin);
      CHECK((*found)->end == tensor.end);
    }
  }
}

TEST_CASE("SafetensorsImage: ranges written by two openers of one file make a sound file") {
  TemporaryFolder folder;
  const std::string path = folder.File("f");
  const auto image = PlanSafetensors({{"a", "U8", {4}}, {"b", "U8", {6}}});
  REQUIRE_OK(image.status());
  {
    const auto first = PosixFile::CreateNew(path);
    REQUIRE_OK(first.status());
    CHECK_OK(first->WriteAt(0, image->start));
    CHECK_OK(first->Resize(image->bytes));
    const auto second = PosixFile::OpenToWrite(path);
    REQUIRE_OK(second.status());
    CHECK(second->size() == image->bytes);
    CHECK_OK(second->WriteAt(image->data_start + image->tensors[1].begin + 3, std::string("def")));
    CHECK_OK(first->WriteAt(image->data_start, std::string("0123abc")));
  }
  const auto file = SafetensorsFile::Open(path);
  REQUIRE_OK(file.status());
  std::string bytes(6, '\0');
  CHECK_OK(file->ReadBytes("b", 0, absl::MakeSpan(bytes.data(), bytes.size())));
  CHECK(bytes == "abcdef");
}

TEST_CASE("SafetensorsImage: sizes that no file can have are refused") {
  const auto refused = [](const std::vector<SafetensorsTensor>& tensors, const std::string& why) {
    const absl::Status status = PlanSafetensors(tensors).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(std::string(status.message()), ContainsSubstring(why));
  };
  const int64_t half = int64_t{1} << 59;  // bytes; a size in bits has to fit too
  std::vector<SafetensorsTensor> many;
  for (int i = 0; i < 15; ++i) many.push_back({std::to_string(i), "U8", {half}});
  CHECK_OK(PlanSafetensors(many).status());
  many.push_back({"last", "U8", {half - 8}});
  refused(many, "the file's size overflows 64 bits");
  many.push_back({"more", "U8", {8}});
  refused(many, "tensor 'more': the file's size overflows 64 bits");
  refused({{std::string(100'000'000, 'n'), "U8", {1}}}, "at most 100000000 are allowed");
}

}  // namespace
}  // namespace zero
