// Checkpoints for tests, made without an optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/save/checkpoint_manifest.h"

namespace zero::test {

// Two units with a matrix, a vector with an alias, a frozen matrix, an empty and a scalar
// parameter; adamw, the trainable ones in `dtype` with fp32 masters. No files yet.
CheckpointManifest SmallCheckpoint(DType dtype);

// Gives `manifest` one file for each of `ranks`, each with a run of every parameter, about as long
// as the others' (some have none): names and pieces only.
void CutIntoFiles(CheckpointManifest& manifest, int ranks);

}  // namespace zero::test
