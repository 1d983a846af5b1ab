// Checkpoints for tests, made without an optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "zero/save/checkpoint_manifest.h"

namespace zero::test {

// Two units with a matrix that has an alias, a vector, a frozen matrix, an empty and a scalar
// parameter; adamw, the trainable ones in `dtype` with fp32 masters. No files yet.
CheckpointManifest SmallCheckpoint(DType dtype);

// Gives `manifest` one file for each of `ranks`, each with a run of every parameter, about as long
// as the others' (some have none): names and pieces only.
void CutIntoFiles(CheckpointManifest& manifest, int ranks);

// An element of a state of a parameter.
using CheckpointValue =
    std::function<float(const std::string& state, int64_t parameter, int64_t element)>;
// Different for each, and exact in every dtype.
float ExactValue(const std::string& state, int64_t parameter, int64_t element);

// Makes `folder`, writes the files that the pieces of `manifest` ask for, sets their sizes and
// checksums, and writes the manifest.
absl::Status WriteCheckpoint(const std::string& folder, CheckpointManifest& manifest,
                             const CheckpointValue& value = ExactValue);

}  // namespace zero::test
