// Folders, and small files written and read whole. Errors name the path and say what the system
// says, with the codes of PosixError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace zero {

// Makes a folder and those above it where they are missing; each is on the disk when this returns.
// Several may make the same one at once. kFailedPrecondition: a file is in the place of one.
absl::Status MakeFolders(const std::string& path);

// kNotFound: there is no folder at `path`, as the message says, and what there must be: "a folder
// of checkpoints".
absl::Status RequireFolder(const std::string& path, const std::string& what);

// 16 hexadecimal digits, for a name that nobody else has.
std::string RandomDigits();

// The names in a folder, hidden ones too, sorted.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// Removes a file, or a folder and everything in it; links are removed, not followed. OK if there is
// nothing. After an error part of it is gone.
absl::Status RemoveTree(const std::string& path);

// Renames a file or folder, and returns when that is on the disk: one step, after which `from` is
// `to`, or nothing has changed. A file at `to` is replaced, and so is an empty folder by a folder.
// An error of the sync of the folders comes when the name has changed.
absl::Status Rename(const std::string& from, const std::string& to);

// Writes a file under a temporary name beside it and renames it: `path` is at any time absent, the
// old file or the new one, whole.
absl::Status WriteWhole(const std::string& path, const std::string& text);
// The same with the content of a file.
absl::Status CopyWhole(const std::string& from, const std::string& to);

// A file's content. kInvalidArgument if it has more than `limit` bytes.
absl::StatusOr<std::string> ReadWhole(const std::string& path, int64_t limit);

}  // namespace zero
