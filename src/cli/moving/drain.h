#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// tessera gpu drain GPU: empties it, as far as that can be, and keeps newcomers off it. Returns when nothing moves any
// more; each vGPU and program that stays is a line on stderr. 1 if one does. `dry`: says what would be done.
Result<int> Drain(const Common& common, const std::string& gpu, bool dry);
// tessera gpu undrain GPU: it takes newcomers again.
Result<int> Undrain(const Common& common, const std::string& gpu);

// tessera rebalance: moves vGPUs, so that there is room for one of this request. Returns when there is. `dry`: says
// what would be done.
struct RoomChoices {
  std::string memory, compute;  // as the API has them; empty: none
  bool dry = false;
};
Result<int> Rebalance(const Common& common, const RoomChoices& choices);

// The API path of a GPU by index or UUID. EINVAL for a word that can be neither.
Result<std::string> GpuPath(const std::string& word);

}  // namespace tessera::cli
