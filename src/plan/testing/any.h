// Random inputs of property tests. The cases are the same on every run; RC_PARAMS="seed=..." or "max_success=..." in
// the environment looks further.
#pragma once

#include <rapidcheck.h>

#include <cstdlib>

#include "base/clock.h"
#include "sched/testing/any_number.h"

namespace tessera::plan {

[[maybe_unused]] inline const int kSameCasesEveryRun = setenv("RC_PARAMS", "seed=1", 0);

using sched::Number;
inline constexpr auto AnyTime = Number<Nanos>;
inline constexpr auto Bytes = Number<std::uint64_t>;

}  // namespace tessera::plan
