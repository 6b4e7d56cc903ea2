#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "client/json.h"

namespace tessera::cli {

// What vGPUs used, as rows of a CSV that `tessera plan` reads: from one answer of the daemon to the next.
class UseRecord {
 public:
  // The first row of the CSV.
  static constexpr const char* kColumns = "second,vgpu,gpu,duty_pct,memory_mib\n";

  // Rows of the time since the last call, a line for each vGPU of `vgpus` (the array in GET /v1/vgpus): the time of the
  // last call; the part of it in which the vGPU had work, its waits included; what it has allocated now. The first call
  // has nothing to compare with, and returns nothing. `now`: seconds of Unix time as nanoseconds, which ascend.
  std::string Rows(const client::Json& vgpus, Nanos now);

 private:
  std::map<std::string, std::uint64_t> worked_us_;  // of each vGPU since it was made, at the last call
  Nanos last_ = 0;                                  // 0: there was none
};

}  // namespace tessera::cli
