// Finds the memory that a submission works on in its arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "pager/heap/heap.h"

namespace tessera::shim {

// A call of a gated function as its trampoline leaves it on the stack (tessera_gate_enter in generate.py): its symbol,
// six registers, the address that it returns to, what the caller put there.
struct GatedCall {
  const std::uint64_t* words;

  std::uint64_t Symbol() const { return words[0]; }  // enum Symbol
  std::uint64_t Argument(std::size_t index) const { return words[index < 6 ? 1 + index : 2 + index]; }
};

// Touches the memory of the heap that the call names: each aligned word in a kernel's arguments that is an address
// there, and the addresses of one-dimensional copies and of memsets. The memory of graphs and of other copies is not
// known. Reads no more than the driver will when the call is made. Takes no lock of its own.
void TouchOperands(const GatedCall& call, pager::Heap& heap, Nanos now);

}  // namespace tessera::shim
