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

// The conditions for the choice of columns.
struct ColumnWishes {
  int width = 80;
  bool tree = true;
  bool several_gpus = false;
  bool swaps = false;   // something is in host memory
  bool history = true;  // there is a minute to show
};

// The columns of the list from left to right, a space apart, together no wider than `wishes.width`. On a narrow screen
// less important columns are omitted; on a wide one names and bars grow.
std::vector<ListColumn> ChooseColumns(const ColumnWishes& wishes);

}  // namespace tessera::cli::top
