#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera::plan {

// Reads a file of these bytes as a CSV, a mix or a trace: the first byte says which. What is wrong with what was made
// of it: a workload that breaks its header's promises, or an error without words; empty: nothing.
std::string RunInput(std::span<const std::uint8_t> bytes);

}  // namespace tessera::plan
