#include "shim/use/operands.h"

#include <string.h>

#include <algorithm>

#include "shim/load/real.h"
#include "shim/process/debugger.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// Nearly all kernels have fewer. Of a kernel that has more, only the first ones are looked at.
constexpr std::size_t kMostParameters = 256;
constexpr std::size_t kMostBytes = 4096;

void VisitWords(const void* bytes, std::size_t count, WordVisitor visitor) {
  const char* at = static_cast<const char*>(bytes);
  for (std::size_t i = 0; i + sizeof(CUdeviceptr) <= count; i += sizeof(CUdeviceptr)) {
    CUdeviceptr word;
    memcpy(&word, at + i, sizeof word);
    visitor(word);
  }
}

// CUDA_SUCCESS while there is a parameter of that index. Asked anew at each launch: what was kept about a function
// could be about another one that lay there before. A handle may be a CUkernel, which the driver takes as a CUfunction.
struct Parameters {
  std::uint64_t function;
  bool is_kernel = false;

  CUresult SizeOf(std::size_t index, std::size_t* bytes) {
    std::size_t offset = 0;
    if (!is_kernel) {
      const CUresult result = REAL_AS(cuFuncGetParamInfo, std::uint64_t, std::size_t, std::size_t*, std::size_t*)(
          function, index, &offset, bytes);
      if (result != CUDA_ERROR_INVALID_HANDLE || index > 0) return result;
      is_kernel = true;
    }
    return REAL_AS(cuKernelGetParamInfo, std::uint64_t, std::size_t, std::size_t*, std::size_t*)(function, index,
                                                                                                 &offset, bytes);
  }
};

// The packed arguments of a launch in the old style.
void VisitBuffer(const void* const* extra, WordVisitor visitor) {
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<const std::size_t*>(extra[1]);
    } else {
      return;  // an option that only the driver knows
    }
  }
  if (buffer) VisitWords(buffer, std::min(bytes, kMostBytes), visitor);
}

struct Touching {
  pager::Heap& heap;
  Nanos now;
  bool named = false;  // some word was an address of the heap

  void operator()(CUdeviceptr word) {
    heap.Heat().Touch(word, now);
    named |= heap.Owns(word);
  }
  WordVisitor Visitor() {
    return {this, [](void* self, CUdeviceptr word) { (*static_cast<Touching*>(self))(word); }};
  }
};

bool TouchLaunch(std::uint64_t function, std::uint64_t arguments, std::uint64_t extra, Touching touch) {
  ForEachWord(function, reinterpret_cast<const void* const*>(arguments), reinterpret_cast<const void* const*>(extra),
              touch.Visitor());
  return touch.named;
}

// The peers' shape has its addresses where this has them.
template <typename Shape>
void TouchShape(std::uint64_t shape, Touching touch) {
  if (shape == 0) return;
  const auto* copy = reinterpret_cast<const Shape*>(shape);
  touch(copy->srcDevice);
  touch(copy->dstDevice);
}

// Addresses of both sides of each copy.
void TouchBatch(std::uint64_t to, std::uint64_t from, std::uint64_t count, Touching touch) {
  for (const std::uint64_t list : {to, from}) {
    const auto* addresses = reinterpret_cast<const CUdeviceptr*>(list);
    for (std::uint64_t i = 0; addresses && i < count; ++i) touch(addresses[i]);
  }
}

void TouchBatch3D(std::uint64_t count, std::uint64_t list, Touching touch) {
  const auto* operations = reinterpret_cast<const CUDA_MEMCPY3D_BATCH_OP*>(list);
  for (std::uint64_t i = 0; operations && i < count; ++i) {
    for (const CUmemcpy3DOperand* side : {&operations[i].src, &operations[i].dst})
      if (side->type == CU_MEMCPY_OPERAND_TYPE_POINTER) touch(side->op.ptr.ptr);
  }
}

}  // namespace

void ForEachWord(std::uint64_t function, const void* const* arguments, const void* const* extra, WordVisitor visitor) {
  if (!arguments) {
    if (extra) VisitBuffer(extra, visitor);
    return;
  }
  // The count of parameters shows by the driver's refusal of the next one, and cuda-gdb prints a warning for each call
  // that the driver refuses.
  static const bool silent = HasDebugger();
  if (silent) return;
  Parameters parameters{.function = function};
  std::size_t bytes = 0, sum = 0;
  for (std::size_t i = 0; i < kMostParameters && sum < kMostBytes; ++i, sum += bytes) {
    if (parameters.SizeOf(i, &bytes) != CUDA_SUCCESS) return;
    if (arguments[i]) VisitWords(arguments[i], std::min(bytes, kMostBytes), visitor);
  }
}

bool TouchOperands(const GatedCall& call, pager::Heap& heap, Nanos now) {
  Touching touch{heap, now};
  switch (call.Symbol()) {
    case k_cuLaunchKernel:
    case k_cuLaunchKernel_ptsz:
      return TouchLaunch(call.Argument(0), call.Argument(9), call.Argument(10), touch);
    case k_cuLaunchCooperativeKernel:
    case k_cuLaunchCooperativeKernel_ptsz:
      return TouchLaunch(call.Argument(0), call.Argument(9), 0, touch);
    case k_cuLaunchKernelEx:
    case k_cuLaunchKernelEx_ptsz:
      return TouchLaunch(call.Argument(1), call.Argument(2), call.Argument(3), touch);
    case k_cuMemcpy2D_v2:
    case k_cuMemcpy2D_v2_ptds:
    case k_cuMemcpy2DUnaligned_v2:
    case k_cuMemcpy2DUnaligned_v2_ptds:
    case k_cuMemcpy2DAsync_v2:
    case k_cuMemcpy2DAsync_v2_ptsz:
      TouchShape<CUDA_MEMCPY2D>(call.Argument(0), touch);
      return true;
    case k_cuMemcpy3D_v2:
    case k_cuMemcpy3D_v2_ptds:
    case k_cuMemcpy3DAsync_v2:
    case k_cuMemcpy3DAsync_v2_ptsz:
    case k_cuMemcpy3DPeer:
    case k_cuMemcpy3DPeer_ptds:
    case k_cuMemcpy3DPeerAsync:
    case k_cuMemcpy3DPeerAsync_ptsz:
      TouchShape<CUDA_MEMCPY3D>(call.Argument(0), touch);
      return true;
    case k_cuMemcpyBatchAsync:
    case k_cuMemcpyBatchAsync_ptsz:
    case k_cuMemcpyBatchAsync_v2:
    case k_cuMemcpyBatchAsync_v2_ptsz:
      TouchBatch(call.Argument(0), call.Argument(1), call.Argument(3), touch);
      return true;
    case k_cuMemcpy3DBatchAsync:
    case k_cuMemcpy3DBatchAsync_ptsz:
    case k_cuMemcpy3DBatchAsync_v2:
    case k_cuMemcpy3DBatchAsync_v2_ptsz:
      TouchBatch3D(call.Argument(0), call.Argument(1), touch);
      return true;
    case k_cuLaunch:
    case k_cuLaunchGrid:
    case k_cuLaunchGridAsync:
    case k_cuLaunchCooperativeKernelMultiDevice:
      return false;
    default:
      // Copies and memsets have their addresses there; other functions have no addresses of the heap there.
      for (const std::size_t i : {0, 1, 2}) touch(call.Argument(i));
      return true;
  }
}

}  // namespace tessera::shim
