#include "shim/memory/operands.h"

#include <string.h>

#include <algorithm>

#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// Nearly all kernels have fewer. Of a kernel that has more, only the first ones are looked at.
constexpr std::size_t kMostParameters = 256;
constexpr std::size_t kMostBytes = 4096;

void TouchWords(const void* bytes, std::size_t count, pager::Heap& heap, Nanos now) {
  const char* at = static_cast<const char*>(bytes);
  for (std::size_t i = 0; i + sizeof(CUdeviceptr) <= count; i += sizeof(CUdeviceptr)) {
    CUdeviceptr word;
    memcpy(&word, at + i, sizeof word);
    heap.Heat().Touch(word, now);
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
void TouchBuffer(void* const* extra, pager::Heap& heap, Nanos now) {
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
  if (buffer) TouchWords(buffer, std::min(bytes, kMostBytes), heap, now);
}

void TouchLaunch(std::uint64_t function, std::uint64_t arguments, std::uint64_t extra, pager::Heap& heap, Nanos now) {
  if (arguments == 0) {
    if (extra != 0) TouchBuffer(reinterpret_cast<void* const*>(extra), heap, now);
    return;
  }
  const auto* const argument = reinterpret_cast<const void* const*>(arguments);
  Parameters parameters{.function = function};
  std::size_t bytes = 0, sum = 0;
  for (std::size_t i = 0; i < kMostParameters && sum < kMostBytes; ++i, sum += bytes) {
    if (parameters.SizeOf(i, &bytes) != CUDA_SUCCESS) return;
    if (argument[i]) TouchWords(argument[i], std::min(bytes, kMostBytes), heap, now);
  }
}

}  // namespace

void TouchOperands(const GatedCall& call, pager::Heap& heap, Nanos now) {
  switch (call.Symbol()) {
    case k_cuLaunchKernel:
    case k_cuLaunchKernel_ptsz:
      return TouchLaunch(call.Argument(0), call.Argument(9), call.Argument(10), heap, now);
    case k_cuLaunchCooperativeKernel:
    case k_cuLaunchCooperativeKernel_ptsz:
      return TouchLaunch(call.Argument(0), call.Argument(9), 0, heap, now);
    case k_cuLaunchKernelEx:
    case k_cuLaunchKernelEx_ptsz:
      return TouchLaunch(call.Argument(1), call.Argument(2), call.Argument(3), heap, now);
    default:
      // Copies and memsets have their addresses there; other functions have no addresses of the heap there.
      for (const std::size_t i : {0, 1, 2}) heap.Heat().Touch(call.Argument(i), now);
  }
}

}  // namespace tessera::shim
