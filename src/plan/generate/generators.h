// What Generate is made of; each checks nothing.
#pragma once

#include <cstdint>
#include <ostream>

#include "base/clock.h"
#include "plan/generate/portable_random.h"

namespace tessera::plan {

void GenerateUse(PortableRandom& random, Nanos length, std::uint32_t programs, std::ostream& out);
void GeneratePods(PortableRandom& random, std::uint32_t pods, std::ostream& out);
void GenerateNodes(PortableRandom& random, std::uint32_t nodes, std::ostream& out);
void GenerateRequests(PortableRandom& random, Nanos length, std::uint32_t an_hour, std::ostream& out);

}  // namespace tessera::plan
