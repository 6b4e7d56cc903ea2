// The driver API for tests, out of a library that is loaded as programs do. $TESSERA_TEST_LIBCUDA names another one:
// the tests of this API hold on a real GPU, too.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/cuda_abi.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

#define TESSERA_TEST_FUNCTIONS(F)                                                                                      \
  F(cuInit, (unsigned))                                                                                                \
  F(cuGetErrorName, (CUresult, const char**))                                                                          \
  F(cuDeviceGet, (CUdevice*, int))                                                                                     \
  F(cuDeviceGetAttribute, (int*, CUdevice_attribute, CUdevice))                                                        \
  F(cuCtxCreate_v2, (CUcontext*, unsigned, CUdevice))                                                                  \
  F(cuCtxDestroy_v2, (CUcontext))                                                                                      \
  F(cuCtxSetCurrent, (CUcontext))                                                                                      \
  F(cuCtxSetLimit, (CUlimit, std::size_t))                                                                             \
  F(cuCtxSynchronize, ())                                                                                              \
  F(cuMemAlloc_v2, (CUdeviceptr*, std::size_t))                                                                        \
  F(cuMemFree_v2, (CUdeviceptr))                                                                                       \
  F(cuMemAllocAsync, (CUdeviceptr*, std::size_t, CUstream))                                                            \
  F(cuMemFreeAsync, (CUdeviceptr, CUstream))                                                                           \
  F(cuDeviceGetDefaultMemPool, (CUmemoryPool*, CUdevice))                                                              \
  F(cuMemPoolGetAttribute, (CUmemoryPool, CUmemPool_attribute, void*))                                                 \
  F(cuMemAllocManaged, (CUdeviceptr*, std::size_t, unsigned))                                                          \
  F(cuMemAdvise, (CUdeviceptr, std::size_t, CUmem_advise, CUdevice))                                                   \
  F(cuMemAdvise_v2, (CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation))                                           \
  F(cuMemPrefetchAsync, (CUdeviceptr, std::size_t, CUdevice, CUstream))                                                \
  F(cuMemPrefetchAsync_v2, (CUdeviceptr, std::size_t, CUmemLocation, unsigned, CUstream))                              \
  F(cuMemPrefetchBatchAsync, (CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*, std::size_t*, std::size_t,      \
                              unsigned long long, CUstream))                                                           \
  F(cuMemDiscardBatchAsync, (CUdeviceptr*, std::size_t*, std::size_t, unsigned long long, CUstream))                   \
  F(cuMemDiscardAndPrefetchBatchAsync, (CUdeviceptr*, std::size_t*, std::size_t, CUmemLocation*, std::size_t*,         \
                                        std::size_t, unsigned long long, CUstream))                                    \
  F(cuMemRangeGetAttribute, (void*, std::size_t, CUmem_range_attribute, CUdeviceptr, std::size_t))                     \
  F(cuMemRangeGetAttributes, (void**, std::size_t*, CUmem_range_attribute*, std::size_t, CUdeviceptr, std::size_t))    \
  F(cuMemcpyBatchAsync, (CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*, std::size_t*,     \
                         std::size_t, std::size_t*, CUstream))                                                         \
  F(cuMemcpy3DBatchAsync, (std::size_t, CUDA_MEMCPY3D_BATCH_OP*, std::size_t*, unsigned long long, CUstream))          \
  F(cuMemcpy3DBatchAsync_v2, (std::size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream))                     \
  F(cuMemHostAlloc, (void**, std::size_t, unsigned))                                                                   \
  F(cuMemFreeHost, (void*))                                                                                            \
  F(cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                                                     \
  F(cuMemcpy, (CUdeviceptr, CUdeviceptr, std::size_t))                                                                 \
  F(cuMemcpyHtoD_v2, (CUdeviceptr, const void*, std::size_t))                                                          \
  F(cuMemcpyHtoD_v2_ptds, (CUdeviceptr, const void*, std::size_t))                                                     \
  F(cuMemcpyDtoH_v2, (void*, CUdeviceptr, std::size_t))                                                                \
  F(cuMemcpyDtoD_v2, (CUdeviceptr, CUdeviceptr, std::size_t))                                                          \
  F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void*, std::size_t, CUstream))                                           \
  F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, std::size_t, CUstream))                                           \
  F(cuMemcpyDtoHAsync_v2, (void*, CUdeviceptr, std::size_t, CUstream))                                                 \
  F(cuMemcpy2D_v2, (const CUDA_MEMCPY2D*))                                                                             \
  F(cuMemcpy3D_v2, (const CUDA_MEMCPY3D*))                                                                             \
  F(cuMemcpyHtoA_v2, (CUarray, std::size_t, const void*, std::size_t))                                                 \
  F(cuMemcpyAtoH_v2, (void*, CUarray, std::size_t, std::size_t))                                                       \
  F(cuArrayCreate_v2, (CUarray*, const CUDA_ARRAY_DESCRIPTOR*))                                                        \
  F(cuArrayDestroy, (CUarray))                                                                                         \
  F(cuMemsetD8_v2, (CUdeviceptr, unsigned char, std::size_t))                                                          \
  F(cuMemsetD16_v2, (CUdeviceptr, unsigned short, std::size_t))                                                        \
  F(cuMemsetD32_v2, (CUdeviceptr, unsigned, std::size_t))                                                              \
  F(cuMemsetD2D8_v2, (CUdeviceptr, std::size_t, unsigned char, std::size_t, std::size_t))                              \
  F(cuMemsetD32Async, (CUdeviceptr, unsigned, std::size_t, CUstream))                                                  \
  F(cuMemsetD32Async_ptsz, (CUdeviceptr, unsigned, std::size_t, CUstream))                                             \
  F(cuStreamCreate, (CUstream*, unsigned))                                                                             \
  F(cuStreamCreateWithPriority, (CUstream*, unsigned, int))                                                            \
  F(cuStreamDestroy_v2, (CUstream))                                                                                    \
  F(cuStreamQuery, (CUstream))                                                                                         \
  F(cuStreamSynchronize, (CUstream))                                                                                   \
  F(cuStreamGetPriority, (CUstream, int*))                                                                             \
  F(cuStreamGetFlags, (CUstream, unsigned*))                                                                           \
  F(cuStreamGetId, (CUstream, unsigned long long*))                                                                    \
  F(cuStreamGetCtx, (CUstream, CUcontext*))                                                                            \
  F(cuStreamGetAttribute, (CUstream, CUstreamAttrID, CUstreamAttrValue*))                                              \
  F(cuStreamSetAttribute, (CUstream, CUstreamAttrID, const CUstreamAttrValue*))                                        \
  F(cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                                                  \
  F(cuStreamAddCallback, (CUstream, CUstreamCallback, void*, unsigned))                                                \
  F(cuLaunchHostFunc, (CUstream, CUhostFn, void*))                                                                     \
  F(cuStreamWaitValue32_v2, (CUstream, CUdeviceptr, std::uint32_t, unsigned))                                          \
  F(cuStreamWaitValue64_v2, (CUstream, CUdeviceptr, std::uint64_t, unsigned))                                          \
  F(cuStreamWriteValue32_v2, (CUstream, CUdeviceptr, std::uint32_t, unsigned))                                         \
  F(cuStreamWriteValue64_v2, (CUstream, CUdeviceptr, std::uint64_t, unsigned))                                         \
  F(cuStreamBatchMemOp_v2, (CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned))                                  \
  F(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                                          \
  F(cuStreamBeginCaptureToGraph,                                                                                       \
    (CUstream, CUgraph, const CUgraphNode*, const CUgraphEdgeData*, std::size_t, CUstreamCaptureMode))                 \
  F(cuStreamEndCapture, (CUstream, CUgraph*))                                                                          \
  F(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus*))                                                           \
  F(cuStreamGetCaptureInfo_v2,                                                                                         \
    (CUstream, CUstreamCaptureStatus*, std::uint64_t*, CUgraph*, const CUgraphNode**, std::size_t*))                   \
  F(cuStreamUpdateCaptureDependencies, (CUstream, CUgraphNode*, std::size_t, unsigned))                                \
  F(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*))                                                         \
  F(cuEventCreate, (CUevent*, unsigned))                                                                               \
  F(cuEventDestroy_v2, (CUevent))                                                                                      \
  F(cuEventRecord, (CUevent, CUstream))                                                                                \
  F(cuEventRecordWithFlags, (CUevent, CUstream, unsigned))                                                             \
  F(cuEventQuery, (CUevent))                                                                                           \
  F(cuEventSynchronize, (CUevent))                                                                                     \
  F(cuEventElapsedTime, (float*, CUevent, CUevent))                                                                    \
  F(cuModuleLoad, (CUmodule*, const char*))                                                                            \
  F(cuModuleLoadData, (CUmodule*, const void*))                                                                        \
  F(cuModuleLoadDataEx, (CUmodule*, const void*, unsigned, CUjit_option*, void**))                                     \
  F(cuModuleUnload, (CUmodule))                                                                                        \
  F(cuModuleGetFunction, (CUfunction*, CUmodule, const char*))                                                         \
  F(cuModuleGetFunctionCount, (unsigned*, CUmodule))                                                                   \
  F(cuModuleGetGlobal_v2, (CUdeviceptr*, std::size_t*, CUmodule, const char*))                                         \
  F(cuFuncGetAttribute, (int*, CUfunction_attribute, CUfunction))                                                      \
  F(cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int))                                                       \
  F(cuFuncGetName, (const char**, CUfunction))                                                                         \
  F(cuFuncGetParamInfo, (CUfunction, std::size_t, std::size_t*, std::size_t*))                                         \
  F(cuLibraryLoadData, (CUlibrary*, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned)) \
  F(cuLibraryUnload, (CUlibrary))                                                                                      \
  F(cuLibraryGetKernel, (CUkernel*, CUlibrary, const char*))                                                           \
  F(cuLibraryGetKernelCount, (unsigned*, CUlibrary))                                                                   \
  F(cuLibraryGetModule, (CUmodule*, CUlibrary))                                                                        \
  F(cuLibraryGetGlobal, (CUdeviceptr*, std::size_t*, CUlibrary, const char*))                                          \
  F(cuLibraryGetManaged, (CUdeviceptr*, std::size_t*, CUlibrary, const char*))                                         \
  F(cuKernelGetFunction, (CUfunction*, CUkernel))                                                                      \
  F(cuKernelGetName, (const char**, CUkernel))                                                                         \
  F(cuKernelSetAttribute, (CUfunction_attribute, int, CUkernel, CUdevice))                                             \
  F(cuKernelGetAttribute, (int*, CUfunction_attribute, CUkernel, CUdevice))                                            \
  F(cuLinkCreate_v2, (unsigned, CUjit_option*, void**, CUlinkState*))                                                  \
  F(cuLinkAddData_v2, (CUlinkState, CUjitInputType, void*, std::size_t, const char*, unsigned, CUjit_option*, void**)) \
  F(cuLinkComplete, (CUlinkState, void**, std::size_t*))                                                               \
  F(cuLinkDestroy, (CUlinkState))                                                                                      \
  F(cuLaunchKernel,                                                                                                    \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))      \
  F(cuLaunchKernel_ptsz,                                                                                               \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))      \
  F(cuLaunchKernelEx, (const CUlaunchConfig*, CUfunction, void**, void**))                                             \
  F(cuLaunchCooperativeKernel,                                                                                         \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**))              \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, CUfunction, int, std::size_t))                                 \
  F(cuOccupancyMaxPotentialBlockSize, (int*, int*, CUfunction, CUoccupancyB2DSize, std::size_t, int))                  \
  F(cuOccupancyAvailableDynamicSMemPerBlock, (std::size_t*, CUfunction, int, int))                                     \
  F(cuGraphCreate, (CUgraph*, unsigned))                                                                               \
  F(cuGraphDestroy, (CUgraph))                                                                                         \
  F(cuGraphDestroyNode, (CUgraphNode))                                                                                 \
  F(cuGraphClone, (CUgraph*, CUgraph))                                                                                 \
  F(cuGraphNodeFindInClone, (CUgraphNode*, CUgraphNode, CUgraph))                                                      \
  F(cuGraphNodeGetType, (CUgraphNode, CUgraphNodeType*))                                                               \
  F(cuGraphGetNodes, (CUgraph, CUgraphNode*, std::size_t*))                                                            \
  F(cuGraphGetRootNodes, (CUgraph, CUgraphNode*, std::size_t*))                                                        \
  F(cuGraphGetEdges, (CUgraph, CUgraphNode*, CUgraphNode*, std::size_t*))                                              \
  F(cuGraphNodeGetDependencies, (CUgraphNode, CUgraphNode*, std::size_t*))                                             \
  F(cuGraphNodeGetDependentNodes, (CUgraphNode, CUgraphNode*, std::size_t*))                                           \
  F(cuGraphAddDependencies, (CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t))                            \
  F(cuGraphRemoveDependencies, (CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t))                         \
  F(cuGraphAddNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams*))                      \
  F(cuGraphAddEmptyNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t))                                     \
  F(cuGraphAddKernelNode_v2, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_KERNEL_NODE_PARAMS*)) \
  F(cuGraphAddMemcpyNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_MEMCPY3D*, CUcontext))   \
  F(cuGraphAddMemsetNode,                                                                                              \
    (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_MEMSET_NODE_PARAMS*, CUcontext))               \
  F(cuGraphAddHostNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const CUDA_HOST_NODE_PARAMS*))        \
  F(cuGraphAddChildGraphNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph))                       \
  F(cuGraphAddEventRecordNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUevent))                      \
  F(cuGraphAddEventWaitNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUevent))                        \
  F(cuGraphAddMemAllocNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*))     \
  F(cuGraphAddMemFreeNode, (CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr))                      \
  F(cuGraphMemAllocNodeGetParams, (CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*))                                          \
  F(cuGraphMemFreeNodeGetParams, (CUgraphNode, CUdeviceptr*))                                                          \
  F(cuUserObjectCreate, (CUuserObject*, void*, CUhostFn, unsigned, unsigned))                                          \
  F(cuUserObjectRetain, (CUuserObject, unsigned))                                                                      \
  F(cuUserObjectRelease, (CUuserObject, unsigned))                                                                     \
  F(cuGraphRetainUserObject, (CUgraph, CUuserObject, unsigned, unsigned))                                              \
  F(cuGraphReleaseUserObject, (CUgraph, CUuserObject, unsigned))                                                       \
  F(cuGraphKernelNodeGetParams_v2, (CUgraphNode, CUDA_KERNEL_NODE_PARAMS*))                                            \
  F(cuGraphKernelNodeSetParams_v2, (CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*))                                      \
  F(cuGraphMemsetNodeGetParams, (CUgraphNode, CUDA_MEMSET_NODE_PARAMS*))                                               \
  F(cuGraphChildGraphNodeGetGraph, (CUgraphNode, CUgraph*))                                                            \
  F(cuGraphInstantiateWithFlags, (CUgraphExec*, CUgraph, unsigned long long))                                          \
  F(cuGraphExecDestroy, (CUgraphExec))                                                                                 \
  F(cuGraphLaunch, (CUgraphExec, CUstream))                                                                            \
  F(cuGraphUpload, (CUgraphExec, CUstream))                                                                            \
  F(cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*))                                        \
  F(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*))                     \
  F(cuGraphNodeSetEnabled, (CUgraphExec, CUgraphNode, unsigned))

struct Driver {
#define MEMBER(name, parameters) CUresult(*name) parameters;
  TESSERA_TEST_FUNCTIONS(MEMBER)
#undef MEMBER

  Driver() {
    // A device of the test program's own, fast, and gone with it.
    setenv("TESSERA_SOFT", "2GiB,sms=4,speed=1G,pcie=16GB/s", /*overwrite=*/1);
    setenv("TESSERA_SOFT_NAME", ("test-" + std::to_string(getpid())).c_str(), /*overwrite=*/1);
    std::atexit([] { unlink(SharedState::DefaultPath().c_str()); });
    const char* path = std::getenv("TESSERA_TEST_LIBCUDA");
    void* const library = dlopen(path != nullptr ? path : TESSERA_SOFT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
#define LOAD(name, parameters) name = reinterpret_cast<decltype(name)>(dlsym(library, #name));
    TESSERA_TEST_FUNCTIONS(LOAD)
#undef LOAD
  }
};

inline const Driver& TheDriver() {
  static const Driver& driver = *new Driver;
  return driver;
}

inline std::string NameOf(CUresult result) {
  const char* name = nullptr;
  TheDriver().cuGetErrorName(result, &name);
  return name != nullptr ? name : std::to_string(result);
}

#define EXPECT_CU(expected, call) EXPECT_EQ(NameOf(call), NameOf(expected))
#define EXPECT_OK(call) EXPECT_CU(CUDA_SUCCESS, call)
#define ASSERT_OK(call) ASSERT_EQ(NameOf(call), NameOf(CUDA_SUCCESS))

// Kernels for tests.
inline constexpr char kTestPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .global .align 4 .u32 variable = 42;
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};

// Does nothing.
.visible .entry empty() { ret; }

// words[i] += value for every thread of the grid.
.visible .entry add(.param .u64 words, .param .u32 value)
{
  .reg .u32 %r<6>; .reg .u64 %d<4>;
  ld.param.u64 %d0, [words];
  ld.param.u32 %r0, [value];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %d1, %r4, 4;
  add.u64 %d2, %d0, %d1;
  ld.global.u32 %r5, [%d2];
  add.u32 %r5, %r5, %r0;
  st.global.u32 [%d2], %r5;
  ret;
}

// Returns when *flag is not zero.
.visible .entry wait_for(.param .u64 flag)
{
  .reg .u32 %r<1>; .reg .u64 %d<1>; .reg .pred %p<1>;
  ld.param.u64 %d0, [flag];
AGAIN:
  ld.volatile.global.u32 %r0, [%d0];
  setp.eq.u32 %p0, %r0, 0;
  @%p0 bra AGAIN;
  ret;
}

// *out = bytes.b of a structure that is passed by value.
.visible .entry by_value(.param .u64 out, .param .align 8 .b8 bytes[24])
{
  .reg .u64 %d<2>;
  ld.param.u64 %d0, [out];
  ld.param.u64 %d1, [bytes+8];
  st.global.u64 [%d0], %d1;
  ret;
}

// Static shared memory, and at most 64 threads.
.visible .entry limited() .maxntid 64, 1, 1
{
  .shared .align 4 .b8 scratch[1024];
  .reg .u32 %r<1>;
  mov.u32 %r0, scratch;
  st.shared.u32 [%r0], %r0;
  ret;
}

.visible .entry bad_address()
{
  .reg .u64 %d<1>; .reg .u32 %r<1>;
  mov.u64 %d0, 16; mov.u32 %r0, 1;
  st.global.u32 [%d0], %r0;
  ret;
}

.visible .entry trapped() { trap; }
)";

// A context of its own for each test.
class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(d.cuInit(0));
    ASSERT_OK(d.cuDeviceGet(&device, 0));
    ASSERT_OK(d.cuCtxCreate_v2(&context, 0, device));
    ASSERT_OK(d.cuModuleLoadData(&module, kTestPtx));
  }
  void TearDown() override { EXPECT_OK(d.cuCtxDestroy_v2(context)); }

  CUfunction Kernel(const char* name) const {
    CUfunction function = nullptr;
    EXPECT_OK(d.cuModuleGetFunction(&function, module, name));
    return function;
  }

  CUresult Launch(CUfunction function, CUstream stream, void** parameters = nullptr, unsigned blocks = 1,
                  unsigned threads = 1) const {
    return d.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
  }

  CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream stream = nullptr;
    EXPECT_OK(d.cuStreamCreate(&stream, flags));
    return stream;
  }

  CUevent NewEvent(unsigned flags = CU_EVENT_DEFAULT) const {
    CUevent event = nullptr;
    EXPECT_OK(d.cuEventCreate(&event, flags));
    return event;
  }

  // Device memory with `words` zeros.
  CUdeviceptr NewWords(std::size_t words) const {
    CUdeviceptr address = 0;
    EXPECT_OK(d.cuMemAlloc_v2(&address, words * 4));
    EXPECT_OK(d.cuMemsetD32_v2(address, 0, words));
    EXPECT_OK(d.cuStreamSynchronize(nullptr));  // other streams need not wait for it
    return address;
  }

  std::uint32_t Word(CUdeviceptr address) const {
    std::uint32_t word = 0;
    EXPECT_OK(d.cuMemcpyDtoH_v2(&word, address, sizeof word));
    return word;
  }

  const Driver& d = TheDriver();
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmodule module = nullptr;
};

// Holds streams back until it is opened: they wait for a word of pinned memory. Open at the end at the latest.
class Gate {
 public:
  Gate() {
    void* memory = nullptr;
    EXPECT_OK(d_.cuMemHostAlloc(&memory, sizeof *word_, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    word_ = new (memory) std::atomic<std::uint32_t>(0);
  }
  ~Gate() {
    Open();
    d_.cuCtxSynchronize();
    d_.cuMemFreeHost(word_);
  }

  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(word_); }
  void Hold(CUstream stream) const {
    EXPECT_OK(d_.cuStreamWaitValue32_v2(stream, address(), 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void Open() { word_->store(1); }

 private:
  const Driver& d_ = TheDriver();
  std::atomic<std::uint32_t>* word_ = nullptr;
};

}  // namespace tessera::soft
