// Writes the seeds of a target into a folder, a file each, for libFuzzer.
#include <cstdio>
#include <fstream>

#include "tests/fuzz/fuzz_target.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int number = 0;
  for (const std::string& seed : FuzzSeeds()) {
    std::ofstream out(std::string(argv[1]) + "/seed-" + std::to_string(number++), std::ios::binary);
    out << seed;
    if (!out.flush()) {
      std::fprintf(stderr, "%s: cannot write to %s\n", argv[0], argv[1]);
      return 1;
    }
  }
  return 0;
}
