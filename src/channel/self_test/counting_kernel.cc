#include "channel/self_test/counting_kernel.h"

namespace tessera::channel {
namespace {

// For an ISA version and target that every driver since CUDA 10 accepts, and the soft GPU. count(words, nanoseconds):
// steps words[0] until words[1] is not 0 or the time is over.
constexpr char kModule[] = R"(
.version 6.4
.target sm_60
.address_size 64

.visible .entry count(.param .u64 count_words, .param .u64 count_nanoseconds)
{
  .reg .pred %p<3>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [count_words];
  ld.param.u64 %rd2, [count_nanoseconds];
  cvta.to.global.u64 %rd3, %rd1;
  mov.u64 %rd4, %globaltimer;
  mov.u32 %r1, 0;
COUNT_STEP:
  add.s32 %r1, %r1, 1;
  st.volatile.global.u32 [%rd3], %r1;
  ld.volatile.global.u32 %r2, [%rd3+4];
  setp.ne.s32 %p1, %r2, 0;
  @%p1 bra COUNT_END;
  mov.u64 %rd5, %globaltimer;
  sub.s64 %rd6, %rd5, %rd4;
  setp.lt.u64 %p2, %rd6, %rd2;
  @%p2 bra COUNT_STEP;
COUNT_END:
  ret;
}
)";

}  // namespace

Result<CountingKernel> CountingKernel::Start(const CudaLibrary& cuda, cuda::CUdevice device) {
  cuda::CUcontext context = nullptr;
  cuda::CUmodule module = nullptr;
  cuda::CUfunction function = nullptr;
  void* words = nullptr;
  cuda::CUdeviceptr words_on_device = 0;
  Result<void> done;
  const auto must = [&](cuda::CUresult result, const char* call) {
    done = CheckCuda(result, call);
    return done.has_value();
  };
  std::uint64_t nanoseconds = kMostTime;
  void* parameters[] = {&words_on_device, &nanoseconds};
  const bool started =
      must(cuda.PrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain") &&
      must(cuda.CtxSetCurrent(context), "cuCtxSetCurrent") &&
      must(cuda.ModuleLoadData(&module, kModule), "cuModuleLoadData") &&
      must(cuda.ModuleGetFunction(&function, module, "count"), "cuModuleGetFunction") &&
      must(cuda.MemHostAlloc(&words, 2 * sizeof(std::uint32_t), cuda::CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc") &&
      must(cuda.MemHostGetDevicePointer(&words_on_device, words, 0), "cuMemHostGetDevicePointer");
  if (!started) return std::unexpected(done.error());
  auto* count = static_cast<volatile std::uint32_t*>(words);
  count[0] = 0;
  count[1] = 0;
  if (!must(cuda.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), "cuLaunchKernel")) {
    return std::unexpected(done.error());
  }
  return CountingKernel(cuda, count);
}

Result<void> CountingKernel::End() {
  words_[1] = 1;
  return CheckCuda(cuda_.CtxSynchronize(), "cuCtxSynchronize");
}

}  // namespace tessera::channel
