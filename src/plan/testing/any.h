// Random inputs of property tests. The cases are the same on every run; RC_PARAMS="seed=..." or "max_success=..." in
// the environment looks further.
#pragma once

#include <rapidcheck.h>

#include "base/clock.h"
#include "base/testing/same_cases.h"
#include "sched/testing/any_number.h"

namespace tessera::plan {

using sched::Number;
inline constexpr auto AnyTime = Number<Nanos>;
inline constexpr auto Bytes = Number<std::uint64_t>;

}  // namespace tessera::plan
