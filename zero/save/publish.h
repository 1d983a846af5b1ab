// Puts the files of a saved model in the place of older ones.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace zero {

// What is in the staging folder of a target, on the disk.
struct StagedModel {
  std::string target;
  std::string staging;               // in the target
  std::vector<std::string> weights;  // names: kWeightFileName, or shards
  bool index = false;                // kWeightIndexName is there too
  std::vector<std::string> others;   // config.json, ...
  // Other staging folders, which are of no use when the new model is in place.
  std::vector<std::string> leftovers = {};
};

struct Published {
  absl::Status status;
  // Not all old files could be put back: what is in the staging folder must stay.
  bool abandoned = false;
};

// Renames everything into the target, the index or the single file last, then removes files of
// weights that the new model does not have, and staging folders. At no moment does a reader find
// new weights among old ones: an index whose shards are replaced is gone before the first of them
// is. An error of any step up to the last rename puts back what was there; a later one says that
// the new weights are in place.
Published PublishModel(const StagedModel& model);

}  // namespace zero
