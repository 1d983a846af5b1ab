// Where files are written before they get their place, and which ranks see the same one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "zero/context.h"
#include "zero/rank_exchange.h"

namespace zero {

// ".saving-<16 hexadecimal digits>" in the folder that is saved to: one in each different folder
// that the ranks were given, on node-local disks say. Move-only; the first rank of those that share
// one removes it, and the folders above it that were made for it and are empty.
class StagingFolder {
 public:
  // [collective] Makes it. An error is the same on every rank, marked as Misuse, and leaves
  // nothing; any other is one of the group.
  static absl::StatusOr<StagingFolder> Create(const Context& context, RankExchange* exchange,
                                              const std::string& target);
  // The same for one process, which has no ranks.
  static absl::StatusOr<StagingFolder> CreateAlone(const std::string& target);
  StagingFolder(StagingFolder&& other) noexcept;
  StagingFolder& operator=(StagingFolder&&) = delete;
  ~StagingFolder();

  const std::string& target() const { return target_; }
  const std::string& path() const { return path_; }
  // The first of the ranks that see this one.
  int first_rank() const { return first_rank_; }
  bool leads() const { return first_rank_ == rank_; }
  // Whether all ranks see the same.
  bool shared() const { return shared_; }

  // The target is to stay, although nothing was made before.
  void Keep() { made_.clear(); }
  // What is in it is to stay as well: it cannot be put back.
  void Abandon() { abandoned_ = true; }
  // Those that saves which were interrupted have left in the target.
  absl::StatusOr<std::vector<std::string>> Others() const;

 private:
  StagingFolder(std::string target, int rank) : target_(std::move(target)), rank_(rank) {}
  absl::Status Make();
  std::string ProbeOf(int rank) const;
  int FindFirstRank(int ranks) const;

  std::string target_;
  std::string path_;
  int rank_ = 0;
  int first_rank_ = 0;
  bool shared_ = false;
  bool agreed_ = false;  // on who sees what
  bool abandoned_ = false;
  std::vector<std::string> made_;  // folders that were not there before, outermost first
};

// The folders that saves which were interrupted, or go on, have in `target`; none if there is no
// such folder.
absl::StatusOr<std::vector<std::string>> InterruptedSaves(const std::string& target);

}  // namespace zero
