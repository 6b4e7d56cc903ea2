#pragma once

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct TopChoices {
  double delay_s = 1;
  bool once = false;
};

// `tessera top`: GPUs, vGPUs and processes on the terminal until the user has enough; with --once as text, with --json
// as lines of JSON. 128 and the signal's number when one ended it.
Result<int> Top(const Common& common, const TopChoices& choices);

}  // namespace tessera::cli
