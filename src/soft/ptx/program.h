// The decoded form of a module: what the parser makes and the warps run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::soft::ptx {

inline constexpr unsigned kWarpSize = 32;

struct Warp;
using LaneMask = std::uint32_t;

// One register of one lane. Narrow values lie in the low bits; what lies above them means nothing, but a signed value
// that a load or cvt widened is extended to all 64 bits.
using Slot = std::uint64_t;

// An operand of an instruction: a register of the running function, or with kConstant set an entry of
// Program::constants. Constants are repeated for each lane so that both are read alike.
using Operand = std::uint32_t;
inline constexpr Operand kConstant = 1u << 31;

// A predicate register times two, plus one if it is negated. Register 0 of every function is always false.
using Predicate = std::uint32_t;
inline constexpr Predicate kFalse = 0;
inline constexpr Predicate kTrue = 1;

enum class Space : std::uint8_t {
  kGeneric,
  kGlobal,  // and .const: both are device memory
  kShared,
  kLocal,
  kFrame,  // .local and .param variables of a function, relative to its frame in local memory
  kParam,  // a kernel's parameters
};

// Where generic addresses see the other spaces. Host addresses have 47 bits, so nothing collides; the low half is zero,
// so that a cut to 32 bits gives the offset.
inline constexpr std::uint64_t kSharedWindow = 0x7000'0000'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x6000'0000'0000'0000;
inline constexpr std::uint64_t kParamWindow = 0x5000'0000'0000'0000;
inline constexpr std::uint64_t kFunctionWindow = 0x4000'0000'0000'0000;
inline constexpr std::uint64_t kWindowMask = 0xffff'0000'0000'0000;

// The value of a pointer to a function.
inline std::uint64_t FunctionAddress(std::uint32_t function) { return kFunctionWindow + 16 * (function + 1ull); }

struct Instruction {
  // Does it for `lanes`, which is never empty. The warp's pc stands on the next instruction already.
  using Handler = void (*)(Warp&, const Instruction&, LaneMask lanes);

  Handler handler = nullptr;
  Handler inner = nullptr;  // what a wrapping handler (rounding, call of a built-in) goes on to
  Operand operand[5] = {};  // destination first
  Predicate guard = kTrue;
  Predicate predicate[3] = {};   // of setp, selp, vote …
  std::uint32_t target = 0;      // program counter, function, or index into a side table
  std::int64_t immediate = 0;    // byte offset, modes
  std::uint32_t float_mode = 0;  // bits of op/float_mode.h to set meanwhile
  std::uint32_t range = 0;       // index of its remembered memory range
  std::uint8_t count = 1;        // elements of a vector
  std::int32_t line = 0;
};

// Bytes that a call copies between the frame of the caller and that of the function it calls.
struct FrameSlot {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct CallSite {
  static constexpr std::uint32_t kIndirect = ~0u;
  std::uint32_t function = kIndirect;
  std::uint32_t caller = 0;
  int line = 0;
  std::vector<FrameSlot> arguments;  // in the caller's frame
  std::vector<FrameSlot> results;
};

struct Function {
  using BuiltIn = void (*)(Warp&, const Instruction&, const CallSite&, LaneMask);

  std::string name;
  bool defined = false;
  bool kernel = false;
  BuiltIn built_in = nullptr;  // what the driver provides: vprintf
  std::uint32_t first = 0;     // its first instruction
  std::uint32_t registers = 0;
  std::uint32_t predicates = 1;
  std::uint32_t frame_bytes = 0;   // .local and .param variables, a multiple of 16
  std::uint32_t shared_bytes = 0;  // .shared variables of a kernel's own
  std::uint32_t stack_bytes = 0;   // local memory that it and what it calls need
  bool calls_unbounded = false;    // recursion or indirect calls: stack_bytes is a guess
  std::vector<FrameSlot> parameters;
  std::vector<FrameSlot> results;
};

// A number that is known only later: an address in the constants or in the bytes of a variable.
struct Relocation {
  static constexpr std::uint32_t kNoVariable = ~0u;
  std::uint32_t variable = 0;  // whose address, if any, counts in
  std::uint64_t at = 0;        // index of the constant, or offset in the variable's bytes
  std::uint64_t addend = 0;
  std::uint8_t shift = 0;  // of 0xff00(symbol): which byte
  std::uint8_t bytes = 8;
};

struct VariableImage {
  std::vector<std::byte> bytes;  // up to the last one given
  std::vector<Relocation> pointers;
  std::uint64_t address = 0;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<Slot> constants;  // kWarpSize for each
  std::vector<Function> functions;
  std::vector<CallSite> calls;
  std::vector<std::vector<std::uint32_t>> branch_tables;  // brx.idx
  std::vector<VariableImage> variables;
  std::vector<Relocation> relocations;  // in the constants
  // Constants that count from the start of a kernel's own shared variables, which lie behind the common ones.
  std::vector<std::uint64_t> kernel_shared_constants;
  std::uint32_t shared_bytes = 0;  // .shared variables outside of kernels
  std::uint32_t dynamic_shared_alignment = 16;
  std::uint32_t ranges = 0;  // instructions that remember a memory range

  void SetConstant(std::uint64_t index, std::uint64_t value) {
    for (unsigned lane = 0; lane < kWarpSize; ++lane) constants[index * kWarpSize + lane] = value;
  }
};

}  // namespace tessera::soft::ptx
