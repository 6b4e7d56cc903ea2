#include "soft/ptx/parse/call_graph.h"

#include <algorithm>
#include <string>

namespace tessera::soft::ptx {
namespace {

// Local memory of a kernel whose calls have no bound that the text tells: recursion and pointers.
constexpr std::uint32_t kUnboundedStackBytes = 16 << 10;
constexpr std::uint32_t kMaxStackBytes = 512 << 10;
constexpr std::size_t kMaxCallDepth = 256;

enum class Visit : char { kNew, kUnderWay, kDone };

Result<void> CheckCalls(const Program& program) {
  for (const CallSite& call : program.calls) {
    if (call.function == CallSite::kIndirect) continue;
    const Function& callee = program.functions[call.function];
    const std::string line = "line " + std::to_string(call.line) + ": ";
    if (callee.kernel || (!callee.defined && callee.built_in == nullptr)) {
      return Fail(ENOTSUP,
                  line + "call of '" + callee.name + "', which has no body here and is not provided by the soft GPU");
    }
    if (call.arguments.size() != callee.parameters.size()) {
      return Fail(EINVAL, line + "call of '" + callee.name + "' with " + std::to_string(call.arguments.size()) +
                              " arguments, it takes " + std::to_string(callee.parameters.size()));
    }
  }
  return {};
}

// Local memory that the function and what it calls need. `depth` counts callers.
std::uint32_t StackBytes(Program& program, std::uint32_t index, std::vector<Visit>& visits, std::size_t depth) {
  Function& function = program.functions[index];
  if (visits[index] == Visit::kDone) return function.stack_bytes;
  visits[index] = Visit::kUnderWay;
  std::uint64_t deepest = 0;
  for (const CallSite& call : program.calls) {
    if (call.caller != index) continue;
    if (call.function == CallSite::kIndirect || visits[call.function] == Visit::kUnderWay || depth == kMaxCallDepth) {
      function.calls_unbounded = true;
      continue;
    }
    deepest = std::max<std::uint64_t>(deepest, StackBytes(program, call.function, visits, depth + 1));
    function.calls_unbounded |= program.functions[call.function].calls_unbounded;
  }
  visits[index] = Visit::kDone;
  function.stack_bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(function.frame_bytes + deepest, kMaxStackBytes + 16));
  return function.stack_bytes;
}

}  // namespace

Result<void> FinishCalls(Program& program, std::vector<Kernel>& kernels) {
  if (Result<void> checked = CheckCalls(program); !checked) return checked;
  for (std::uint64_t constant : program.kernel_shared_constants) {
    program.SetConstant(constant, program.constants[constant * kWarpSize] + program.shared_bytes);
  }
  std::vector<Visit> visits(program.functions.size());
  for (Kernel& kernel : kernels) {
    Function& function = program.functions[kernel.function];
    kernel.static_shared_bytes = program.shared_bytes + function.shared_bytes;
    StackBytes(program, kernel.function, visits, 0);
    if (function.calls_unbounded) function.stack_bytes += kUnboundedStackBytes;
    if (function.stack_bytes > kMaxStackBytes) {
      return Fail(ENOTSUP, "kernel '" + kernel.name + "' needs " + std::to_string(function.stack_bytes) +
                               " bytes of local memory per thread, the soft GPU has " + std::to_string(kMaxStackBytes));
    }
    kernel.local_bytes = function.stack_bytes;
  }
  return {};
}

}  // namespace tessera::soft::ptx
