#include "tests/zero/crash/recorded_files.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "tests/io/gated_files.h"

namespace zero::test {
namespace {

// A file or folder as it is in memory and as it is on the disk.
struct Node {
  bool folder = false;
  std::string content, synced_content;
  std::map<std::string, std::shared_ptr<Node>> entries, synced_entries;
};

class Disk {
 public:
  explicit Disk(Names names) : names_(names) { root_->folder = true; }

  void Apply(const FileOperation& operation) {
    switch (operation.kind) {
      case FileOperation::kMake:
      case FileOperation::kMakeFolder: {
        auto& entry = FolderOf(operation.path)->entries[NameOf(operation.path)];
        entry = std::make_shared<Node>();
        entry->folder = operation.kind == FileOperation::kMakeFolder;
        return;
      }
      case FileOperation::kWrite: {
        std::string& content = Find(operation.path)->content;
        const auto end = static_cast<size_t>(operation.offset) + operation.bytes.size();
        content.resize(std::max(content.size(), end), '\0');
        content.replace(static_cast<size_t>(operation.offset), operation.bytes.size(),
                        operation.bytes);
        return;
      }
      case FileOperation::kResize:
        Find(operation.path)->content.resize(static_cast<size_t>(operation.offset), '\0');
        return;
      case FileOperation::kSync: {
        Node* const node = Find(operation.path);
        node->synced_content = node->content;
        node->synced_entries = node->entries;
        return;
      }
      case FileOperation::kRename: {
        auto& from = FolderOf(operation.path)->entries;
        const auto found = from.find(NameOf(operation.path));
        std::shared_ptr<Node> node = found->second;
        from.erase(found);
        FolderOf(operation.to)->entries[NameOf(operation.to)] = std::move(node);
        return;
      }
      case FileOperation::kUnlink:
      case FileOperation::kRemoveFolder:
        FolderOf(operation.path)->entries.erase(NameOf(operation.path));
        return;
    }
  }

  std::map<std::string, std::string> Synced() const {
    std::map<std::string, std::string> image;
    Collect(*root_, "", image);
    return image;
  }

 private:
  static std::string NameOf(const std::string& path) {
    return std::filesystem::path(path).filename().string();
  }
  Node* FolderOf(const std::string& path) {
    return Find(std::filesystem::path(path).parent_path().string());
  }
  Node* Find(const std::string& path) {
    Node* node = root_.get();
    for (const auto& part : std::filesystem::path(path)) {
      if (part == "." || part.empty()) continue;
      node = node->entries.at(part.string()).get();
    }
    return node;
  }
  void Collect(const Node& node, const std::string& path,
               std::map<std::string, std::string>& image) const {
    const auto& entries = names_ == Names::kLost ? node.synced_entries : node.entries;
    for (const auto& [name, child] : entries) {
      if (child->folder) {
        image[path + name + "/"] = "";
        Collect(*child, path + name + "/", image);
      } else {
        image[path + name] = child->synced_content;
      }
    }
  }

  const Names names_;
  const std::shared_ptr<Node> root_ = std::make_shared<Node>();
};

}  // namespace

RecordedFiles::RecordedFiles(const std::string& folder)
    : folder_(std::filesystem::canonical(folder).string()) {}

std::vector<FileOperation> RecordedFiles::log() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return log_;
}

int64_t RecordedFiles::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(log_.size());
}

std::string RecordedFiles::Inside(const std::string& path) const {
  if (path == folder_) return ".";
  if (path.rfind(folder_ + "/", 0) != 0) return "";
  return path.substr(folder_.size() + 1);
}

template <class Call>
auto RecordedFiles::Keep(FileOperation operation, Call call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto result = call();
  if (result >= 0 && !operation.path.empty()) log_.push_back(std::move(operation));
  return result;
}

int RecordedFiles::Open(const char* path, int flags, mode_t mode) {
  const bool makes = (flags & O_CREAT) != 0;
  return Keep({FileOperation::kMake, makes ? Inside(path) : ""},
              [&] { return FileCalls::Open(path, flags, mode); });
}

ssize_t RecordedFiles::Pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  FileOperation operation{FileOperation::kWrite, Inside(PathOf(descriptor))};
  operation.bytes.assign(static_cast<const char*>(bytes), count);
  operation.offset = offset;
  return Keep(std::move(operation),
              [&] { return FileCalls::Pwrite(descriptor, bytes, count, offset); });
}

int RecordedFiles::Fsync(int descriptor) {
  return Keep({FileOperation::kSync, Inside(PathOf(descriptor))},
              [&] { return FileCalls::Fsync(descriptor); });
}

int RecordedFiles::Truncate(int descriptor, off_t bytes) {
  FileOperation operation{FileOperation::kResize, Inside(PathOf(descriptor))};
  operation.offset = bytes;
  return Keep(std::move(operation), [&] { return FileCalls::Truncate(descriptor, bytes); });
}

int RecordedFiles::Rename(const char* from, const char* to) {
  return Keep({FileOperation::kRename, Inside(from), Inside(to)},
              [&] { return FileCalls::Rename(from, to); });
}

int RecordedFiles::MakeFolder(const char* path, mode_t mode) {
  return Keep({FileOperation::kMakeFolder, Inside(path)},
              [&] { return FileCalls::MakeFolder(path, mode); });
}

int RecordedFiles::Unlink(const char* path) {
  return Keep({FileOperation::kUnlink, Inside(path)}, [&] { return FileCalls::Unlink(path); });
}

int RecordedFiles::RemoveFolder(const char* path) {
  return Keep({FileOperation::kRemoveFolder, Inside(path)},
              [&] { return FileCalls::RemoveFolder(path); });
}

std::map<std::string, std::string> ImageAfter(const std::vector<FileOperation>& log, int64_t count,
                                              Names names) {
  Disk disk(names);
  for (int64_t i = 0; i < count; ++i) disk.Apply(log[static_cast<size_t>(i)]);
  return disk.Synced();
}

void WriteImage(const std::map<std::string, std::string>& image, const std::string& folder) {
  for (const auto& [path, content] : image) {
    const std::filesystem::path target = std::filesystem::path(folder) / path;
    if (path.back() == '/') {
      std::filesystem::create_directories(target);
    } else {
      std::filesystem::create_directories(target.parent_path());
      std::ofstream(target, std::ios::binary) << content;
    }
  }
}

}  // namespace zero::test
