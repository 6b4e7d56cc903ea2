#pragma once

#include <vector>

namespace tessera::cli::top {

enum class ColumnKind {
  kName,
  kVgpu,
  kGpu,
  kPriority,
  kWeight,
  kState,
  kShare,
  kCompute,
  kMemory,
  kSwapped,
  kProcesses,
  kTime,
  kMinute
};

struct ListColumn {
  ColumnKind kind;
  const char* title;
  int width;
};

// What decides which columns there are.
struct ColumnWishes {
  int width = 80;
  bool tree = true;
  bool several_gpus = false;
  bool swaps = false;   // something is in host memory
  bool history = true;  // there is a minute to show
};

// The columns of the list from left to right, a space apart, together no wider than wished: where there is little
// room, the less important are left out; where there is much, names and bars get it.
std::vector<ListColumn> ChooseColumns(const ColumnWishes& wishes);

}  // namespace tessera::cli::top
