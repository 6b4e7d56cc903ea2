// For property tests: the cases are the same on every run; RC_PARAMS="seed=..." in the environment looks further.
#pragma once

#include <cstdlib>

namespace tessera {

[[maybe_unused]] inline const int kSameCasesEveryRun = setenv("RC_PARAMS", "seed=1", 0);

}  // namespace tessera
