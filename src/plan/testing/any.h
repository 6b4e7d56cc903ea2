// Random inputs of property tests. The cases are the same on every run; RC_PARAMS="seed=..." or "max_success=..." in
// the environment looks further.
#pragma once

#include <rapidcheck.h>

#include <cstdlib>

#include "base/clock.h"

namespace tessera::plan {

[[maybe_unused]] inline const int kSameCasesEveryRun = setenv("RC_PARAMS", "seed=1", 0);

// Any of the range in every case: by itself rapidcheck begins with small ones.
template <typename T>
T Number(T least, T most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(least, most + 1));
}
inline constexpr auto AnyTime = Number<Nanos>;
inline constexpr auto Bytes = Number<std::uint64_t>;

}  // namespace tessera::plan
