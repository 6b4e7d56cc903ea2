#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera::pager {

// Lets a hostile mover speak to a program's heap, whose driver fails now and then. `script` is a list of operations, a
// byte each with those that it needs behind it: allocations, frees, messages of any type that name any chunks, ends of
// the line. Returns what was wrong: a call that the driver must not get, a figure that is not so, memory that is left
// when all is freed. Empty: nothing.
std::string RunAgentScript(std::span<const std::uint8_t> script);

}  // namespace tessera::pager
