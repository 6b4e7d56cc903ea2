// How the processor rounds, and whether it takes subnormal numbers for zero: bits of a control register that each
// thread has. kRoundMask covers those of rounding, which are 0 for the nearest number; kRoundDown, kRoundUp and
// kRoundToZero are values of them. ReadFloatMode() and WriteFloatMode() have the calling thread's whole register.
#pragma once

#if defined(__x86_64__)
#include "soft/ptx/op/float_mode_x86_64.h"
#else
#include "soft/ptx/op/float_mode_aarch64.h"
#endif
