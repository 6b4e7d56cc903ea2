#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct TraceChoices {
  std::string lasts;                          // --for: from now on
  std::string past = "1min";                  // until now
  bool last = false;                          // the trace that the daemon saved at its last error
  std::string output = "tessera-trace.json";  // "-": stdout
};

// `tessera trace`: writes a timeline of the GPUs for https://ui.perfetto.dev. Blocks for the time `lasts`.
Result<int> WriteTrace(const Common& common, const TraceChoices& choices);

}  // namespace tessera::cli
