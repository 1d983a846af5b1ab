#include "io/weight_folder.h"

#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/catch.h"
#include "tests/io/raw_safetensors.h"
#include "tests/io/temporary_folder.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

constexpr char kFirst[] = "model-00001-of-00002.safetensors";
constexpr char kSecond[] = "model-00002-of-00002.safetensors";

// A file of fp32 tensors with one element each, the ASCII code of the name's last letter.
std::string FileOf(const Names& tensors) {
  Names entries;
  std::string data;
  for (const std::string& name : tensors) {
    entries.push_back(
        Entry(name, "F32", "1", absl::StrCat(data.size(), ",", data.size() + sizeof(float))));
    const float value = name.back();
    data.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return RawFile(absl::StrCat("{", absl::StrJoin(entries, ","), "}"), data);
}

// a in the first shard, b and c in the second.
class ShardedFolder : public TemporaryFolder {
 public:
  ShardedFolder() { Fill(path()); }
  static void Fill(const std::string& folder) {
    WriteFile(folder + "/" + kFirst, FileOf({"a"}));
    WriteFile(folder + "/" + kSecond, FileOf({"b", "c"}));
    WriteIndex(folder, "12", kFirst, kSecond, kSecond);
  }
  static void WriteIndex(const std::string& folder, const std::string& total, const std::string& a,
                         const std::string& b, const std::string& c) {
    WriteFile(
        folder + "/" + kWeightIndexName,
        absl::StrCat("{\"metadata\": {\"total_size\": ", total, "}, \"weight_map\": {\"a\": \"", a,
                     "\", \"b\": \"", b, "\", \"c\": \"", c, "\"}}"));
  }
};

// The tensors and their values, which must be those of their names.
std::string Loaded(const absl::StatusOr<WeightFolder>& weights) {
  if (!weights.ok()) return weights.status().ToString();
  std::string names;
  for (const auto& [name, tensor] : weights->tensors()) {
    float value = 0;
    CHECK_OK(weights->Read(name, 0, absl::MakeSpan(&value, 1)));
    CHECK(value == static_cast<float>(name.back()));
    float bytes = 0;
    CHECK_OK(weights->ReadBytes(name, 0, absl::MakeSpan(reinterpret_cast<char*>(&bytes), 4)));
    CHECK(bytes == value);
    names += name + " ";
  }
  return names;
}

void CheckRefused(const std::string& folder, absl::StatusCode code, const Names& words) {
  const absl::Status status = WeightFolder::Open(folder).status();
  CHECK(status.code() == code);
  CHECK_THAT(std::string(status.message()), ContainsSubstring(folder));
  for (const std::string& word : words) {
    CHECK_THAT(std::string(status.message()), ContainsSubstring(word));
  }
}

TEST_CASE("WeightFolder: the tensors of the files of an index are one list") {
  const ShardedFolder folder;
  const auto weights = WeightFolder::Open(folder.path());
  CHECK(Loaded(weights) == "a b c ");
  CHECK(weights->notes().empty());
  CHECK(weights->path() == folder.File(kWeightIndexName));
  CHECK(weights->files().size() == 2);
  CHECK((*weights->FileOf("c"))->path() == folder.File(kSecond));
  CHECK(*WeightFolder::In(folder.path()));
  float value = 0;
  const absl::Status absent = weights->Read("d", 0, absl::MakeSpan(&value, 1));
  CHECK(absent.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(absent.message()), ContainsSubstring("no tensor 'd' among 3 tensors"));
  CHECK(weights->Read("c", 1, absl::MakeSpan(&value, 1)).code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("WeightFolder: without an index it is the single file and without both it is kNotFound") {
  const TemporaryFolder folder;
  CHECK(!*WeightFolder::In(folder.path()));
  CheckRefused(folder.path(), absl::StatusCode::kNotFound,
               {"model.safetensors: no such file, and no model.safetensors.index.json"});
  WriteFile(folder.File("pytorch_model.bin"), "x");
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument, {"holds 'pytorch_model.bin'"});
  WriteFile(folder.File("model.safetensors"), FileOf({"x", "y"}));
  const auto weights = WeightFolder::Open(folder.path());
  CHECK(Loaded(weights) == "x y ");
  CHECK(weights->notes().empty());
  CHECK(weights->path() == folder.File("model.safetensors"));
}

// transformers takes it, whatever the index says.
TEST_CASE("WeightFolder: of a single file and an index the file is used and a note says so") {
  const ShardedFolder folder;
  WriteFile(folder.File("model.safetensors"), FileOf({"x", "y"}));
  fs::remove(folder.File(kFirst));
  const auto weights = WeightFolder::Open(folder.path());
  CHECK(Loaded(weights) == "x y ");
  CHECK(weights->path() == folder.File("model.safetensors"));
  CHECK(weights->notes() == Names{"model.safetensors.index.json and what it names are passed over: "
                                  "model.safetensors is there, and comes first"});
}

TEST_CASE("WeightFolder: shards that are missing are named with the tensors they should hold") {
  const ShardedFolder folder;
  fs::remove(folder.File(kSecond));
  CheckRefused(
      folder.path(), absl::StatusCode::kNotFound,
      {folder.File(kWeightIndexName),
       absl::StrCat(kSecond, " is missing, which should hold 2 tensors: tensor 'b', ...")});
  fs::remove(folder.File(kFirst));
  CheckRefused(folder.path(), absl::StatusCode::kNotFound,
               {absl::StrCat(kFirst, " is missing, which should hold 1 tensor: tensor 'a'; "),
                absl::StrCat(kSecond, " is missing")});
}

TEST_CASE("WeightFolder: tensors that are not where the index says are all named") {
  const ShardedFolder folder;
  ShardedFolder::WriteIndex(folder.path(), "12", kFirst, kFirst, kSecond);
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument,
               {absl::StrCat("tensor 'b' is in ", kSecond, ", the index says in ", kFirst)});
  WriteFile(folder.File(kSecond), FileOf({"x"}));
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument,
               {absl::StrCat("tensor 'b' is not in ", kFirst, ", as the index says; tensor 'c' is ",
                             "not in ", kSecond)});
  ShardedFolder::Fill(folder.path());
  WriteFile(folder.File(kFirst), FileOf({"a", "c"}));
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument,
               {absl::StrCat("tensor 'c' is in ", kFirst, " and in ", kSecond)});
}

TEST_CASE("WeightFolder: tensors and files that the index does not list are left out and noted") {
  const ShardedFolder folder;
  WriteFile(folder.File(kFirst), FileOf({"a", "y", "z"}));
  WriteFile(folder.File("model-00003-of-00003.safetensors"), FileOf({"w"}));
  WriteFile(folder.File(".hidden.safetensors"), "x");
  const auto weights = WeightFolder::Open(folder.path());
  CHECK(Loaded(weights) == "a b c ");
  REQUIRE(weights->notes().size() == 2);
  CHECK(weights->notes()[0] ==
        absl::StrCat("2 tensors of ", kFirst, " not in the index and left out: tensor 'y', ..."));
  CHECK(weights->notes()[1] ==
        "model-00003-of-00003.safetensors is not in the index and passed over");
}

TEST_CASE("WeightFolder: a total_size that is not the sum is noted with both numbers") {
  const ShardedFolder folder;
  ShardedFolder::WriteIndex(folder.path(), "9999", kFirst, kSecond, kSecond);
  const auto weights = WeightFolder::Open(folder.path());
  CHECK(Loaded(weights) == "a b c ");
  CHECK(weights->notes() == Names{"model.safetensors.index.json says that the tensors have 9999 "
                                  "bytes, but they have 12"});
}

TEST_CASE("WeightFolder: an index or shard of another kind is named for what it is") {
  const ShardedFolder folder;
  WriteFile(folder.File(kFirst), "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument, {kFirst, "git-lfs pointer"});
  ShardedFolder::Fill(folder.path());
  const std::string index = ReadFile(folder.File(kWeightIndexName));
  WriteFile(folder.File(kWeightIndexName), index.substr(0, 60));
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument,
               {absl::StrCat(kWeightIndexName, ": line 1 column ")});
  WriteFile(folder.File(kWeightIndexName), "<html>");
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument,
               {absl::StrCat(kWeightIndexName, ": line 1 column 1: not JSON: it is an HTML")});
  fs::resize_file(folder.File(kWeightIndexName), (64 << 20) + 1);
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument, {"at most 67108864 are read"});
  fs::remove(folder.File(kWeightIndexName));
  fs::create_directory(folder.File(kWeightIndexName));
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument, {"not a regular file"});
}

TEST_CASE("WeightFolder: names and links that leave the folder are refused") {
  const ShardedFolder folder;
  const ShardedFolder other;
  ShardedFolder::WriteIndex(folder.path(), "12", other.File(kFirst), kSecond, kSecond);
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument,
               {"tensor \"a\" is in", "the name of a file in the same folder"});
  ShardedFolder::WriteIndex(folder.path(), "12", "link", kSecond, kSecond);
  fs::create_symlink(other.File(kFirst), folder.File("link"));
  CheckRefused(folder.path(), absl::StatusCode::kInvalidArgument,
               {"link is a link out of the folder, to ", kFirst});
  // Inside of it is fine, and so is a link to the whole folder.
  fs::remove(folder.File("link"));
  fs::create_symlink(kFirst, folder.File("link"));
  CHECK(Loaded(WeightFolder::Open(folder.path())) == "a b c ");
  fs::create_directory_symlink(folder.path(), other.File("elsewhere"));
  CHECK(Loaded(WeightFolder::Open(other.File("elsewhere"))) == "a b c ");
}

TEST_CASE("WeightFolder: a snapshot of the hub's cache is links to its blobs and loads") {
  const TemporaryFolder folder;
  const std::string snapshot = folder.File("models--x--y/snapshots/0123abcd");
  const std::string blobs = folder.File("models--x--y/blobs");
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  ShardedFolder::Fill(snapshot);
  for (const std::string name : {kFirst, kSecond, kWeightIndexName}) {
    fs::rename(snapshot + "/" + name, blobs + "/" + name + ".blob");
    fs::create_symlink("../../blobs/" + name + ".blob", snapshot + "/" + name);
  }
  CHECK(Loaded(WeightFolder::Open(snapshot)) == "a b c ");
  // The same links anywhere else leave the folder.
  fs::rename(folder.File("models--x--y/snapshots"), folder.File("models--x--y/copies"));
  CheckRefused(folder.File("models--x--y/copies/0123abcd"), absl::StatusCode::kInvalidArgument,
               {"is a link out of the folder"});
}

}  // namespace
}  // namespace zero
