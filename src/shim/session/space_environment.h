// A program in a space is a client of the space's MPS server. It becomes one by its environment, which `tessera run`
// sets. A wrong environment would let it run outside of MPS, and nobody would say so: the shim refuses it the GPU
// instead.
#pragma once

#include <string>

#include "wire/protocol.h"

namespace tessera::shim {

// Why the environment does not lead into the space that the daemon named; empty: it does, or there is no space.
std::string WhyNotInSpace(const wire::Welcome& terms);

}  // namespace tessera::shim
