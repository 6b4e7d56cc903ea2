#include "driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace tessera::churn {

using namespace cuda;

namespace {

constexpr unsigned kThreads = 128;

constexpr char kKernel[] = R"(
.version 6.4
.target sm_60
.address_size 64
.visible .entry step(.param .u64 step_base, .param .u64 step_words, .param .u64 step_stride, .param .u64 step_factor,
                     .param .u64 step_term)
{
  .reg .pred %p<3>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<14>;
  ld.param.u64 %rd1, [step_base];
  ld.param.u64 %rd2, [step_words];
  ld.param.u64 %rd3, [step_stride];
  ld.param.u64 %rd4, [step_factor];
  ld.param.u64 %rd5, [step_term];
  cvta.to.global.u64 %rd6, %rd1;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd7, %r1, %r2;
  cvt.u64.u32 %rd8, %r3;
  add.s64 %rd7, %rd7, %rd8;
  mul.wide.u32 %rd9, %r4, %r2;
  setp.ge.u64 %p1, %rd7, %rd2;
  @%p1 bra STEP_END;
STEP_NEXT:
  mad.lo.s64 %rd10, %rd7, %rd3, %rd6;
  ld.global.u64 %rd11, [%rd10];
  mad.lo.s64 %rd12, %rd11, %rd4, %rd5;
  add.s64 %rd13, %rd12, %rd7;
  st.global.u64 [%rd10], %rd13;
  add.s64 %rd7, %rd7, %rd9;
  setp.lt.u64 %p2, %rd7, %rd2;
  @%p2 bra STEP_NEXT;
STEP_END:
  ret;
}
)";

}  // namespace

void Die(const char* what, const char* why) {
  std::fprintf(stderr, "swap_churn: %s: %s\n", what, why);
  std::_Exit(3);
}

void* Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* address = library ? dlsym(library, name) : nullptr;
  if (!address) Die(name, dlerror());
  return address;
}

void Check(CUresult result, const char* name) {
  if (result == CUDA_SUCCESS) return;
  const char* text = "unknown error";
  Call("cuGetErrorName", result, &text);
  Die(name, text);
}

Gpu::Gpu() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  Must("cuInit", 0u);
  Must("cuDeviceGet", &device, 0);
  // Waiting sleeps: many programs on few cores must not take the CPU from one another.
  Must("cuDevicePrimaryCtxSetFlags_v2", device, unsigned{CU_CTX_SCHED_BLOCKING_SYNC});
  Must("cuDevicePrimaryCtxRetain", &context, device);
  Must("cuCtxSetCurrent", context);
  Must("cuModuleLoadData", &module, static_cast<const void*>(kKernel));
  Must("cuModuleGetFunction", &step_, module, static_cast<const char*>("step"));
  Must("cuStreamCreate", &stream_, 1u);
}

void Gpu::Step(CUdeviceptr base, std::uint64_t words, std::uint64_t stride, std::uint64_t factor,
               std::uint64_t term) const {
  void* parameters[] = {&base, &words, &stride, &factor, &term};
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>((words + kThreads - 1) / kThreads, 1, 264));
  Must("cuLaunchKernel", step_, blocks, 1u, 1u, kThreads, 1u, 1u, 0u, stream_, static_cast<void**>(parameters),
       static_cast<void**>(nullptr));
}

void Gpu::Copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) const {
  Must("cuMemcpyDtoDAsync_v2", to, from, bytes, stream_);
}

void Gpu::Scatter(CUdeviceptr to, std::uint64_t stride, std::span<const std::uint64_t> words) const {
  Synchronize();
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = words.data();
  copy.srcPitch = sizeof words[0];
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = stride;
  copy.WidthInBytes = sizeof words[0];
  copy.Height = words.size();
  Must("cuMemcpy2DUnaligned_v2", const_cast<const CUDA_MEMCPY2D*>(&copy));
  // It may return before the words are there, and our stream does not wait for the legacy one.
  Must("cuStreamSynchronize", CUstream{});
}

void Gpu::Gather(std::span<std::uint64_t> words, CUdeviceptr from, std::uint64_t stride) const {
  Synchronize();
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcPitch = stride;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = words.data();
  copy.dstPitch = sizeof words[0];
  copy.WidthInBytes = sizeof words[0];
  copy.Height = words.size();
  Must("cuMemcpy2DUnaligned_v2", const_cast<const CUDA_MEMCPY2D*>(&copy));
}

void Gpu::Synchronize() const { Must("cuStreamSynchronize", stream_); }

}  // namespace tessera::churn
