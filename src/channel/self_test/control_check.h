#pragma once

#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/result.h"
#include "channel/control/control.h"
#include "channel/self_test/self_test.h"

namespace tessera::channel {

// How to tell whether a process makes progress on the GPU.
struct Progress {
  std::function<std::uint32_t()> count;  // grows while its kernel runs
  std::function<void(Nanos)> sleep;
  Nanos settle = 0;  // after a freeze the count may grow for as long
};

// Tries a Control on a process whose kernel runs: its slice can be read and set, the kernel stands still while it is
// frozen and goes on afterwards, three times. `begin` hears which step begins: "slice", "freeze", "thaw". The process
// runs when it returns, whatever went wrong, with the slice that it had if all went well.
Result<SelfTest> CheckControl(Control& control, std::uint32_t gpu, const Target& target, const Progress& progress,
                              const std::function<void(const char*)>& begin);

}  // namespace tessera::channel
