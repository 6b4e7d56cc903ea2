// Special registers (PTX ISA 10) and addresses that only the running thread knows.
#pragma once

#include <string_view>

#include "soft/ptx/program.h"

namespace tessera::soft::ptx {

// The handler that moves %tid and x, say, to operand[0]; nullptr if there is no such register.
Instruction::Handler FindSpecial(std::string_view name, std::string_view component);

// operand[0] = the address of what lies at `immediate` in the function's frame, or in dynamic shared memory.
void FrameAddress(Warp& warp, const Instruction& in, LaneMask lanes);
void DynamicSharedAddress(Warp& warp, const Instruction& in, LaneMask lanes);

}  // namespace tessera::soft::ptx
