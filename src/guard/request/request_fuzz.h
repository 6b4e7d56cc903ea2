#pragma once

#include <cstdint>
#include <span>

namespace tessera::guard {

// Lets a hostile program choose what the gate decodes and decides on: `bytes` is the number of an escape, a byte that
// picks its size, and the argument and parameters, shortened or filled up with zeros. Returns whether the rules hold
// that no request may break: no memory, no reach for other programs' channels and no request inside another passes.
bool RunRequest(std::span<const std::uint8_t> bytes);

}  // namespace tessera::guard
