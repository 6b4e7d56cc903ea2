#pragma once

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct TopChoices {
  double delay_s = 1;
  bool once = false;
};

// `tessera top`: shows GPUs, vGPUs and processes on the terminal until the user quits; with --once as text, with --json
// as lines of JSON. Returns 128 plus the number of the signal that ended it.
Result<int> Top(const Common& common, const TopChoices& choices);

}  // namespace tessera::cli
