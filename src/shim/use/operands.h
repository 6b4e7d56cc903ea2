// Finds the memory that a submission works on in its arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "pager/heap/heap.h"

namespace tessera::shim {

// A call of a gated function as its trampoline leaves it on the stack (GATE_ENTER in load/trampolines_*.py): its
// symbol, the registers with arguments, the address that it returns to, what the caller put there.
struct GatedCall {
#if defined(__x86_64__)
  static constexpr std::size_t kRegisters = 6;
#else
  static constexpr std::size_t kRegisters = 8;
#endif
  const std::uint64_t* words;

  std::uint64_t Symbol() const { return words[0]; }  // enum Symbol
  std::uint64_t Argument(std::size_t index) const { return words[index < kRegisters ? 1 + index : 2 + index]; }
};

// Takes words one after the other.
struct WordVisitor {
  void* data;
  void (*visit)(void* data, cuda::CUdeviceptr word);
  void operator()(cuda::CUdeviceptr word) const { visit(data, word); }
};

// Visits each aligned word in the arguments of a launch of `function` (a CUfunction or a CUkernel), given as to
// cuLaunchKernel. Reads no more than the driver does. Asks the driver for the arguments' sizes (driver 550 and newer).
// Visits none in a program that a debugger had when this was first called.
void ForEachWord(std::uint64_t function, const void* const* arguments, const void* const* extra, WordVisitor visitor);

// Touches the memory of the heap that the call names: each word of a kernel's arguments that is an address there, the
// addresses of copies and memsets. Of graphs, graph_use.h knows. Reads no more than the driver will when the call is
// made. Takes no lock of its own. False: it launches a kernel whose arguments name no memory of the heap, or cannot be
// known, so that it may use any.
[[nodiscard]] bool TouchOperands(const GatedCall& call, pager::Heap& heap, Nanos now);

}  // namespace tessera::shim
