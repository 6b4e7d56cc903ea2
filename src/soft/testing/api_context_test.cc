#include <thread>
#include <vector>

#include "soft/testing/test_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

using ApiContext = SoftApiTest;

TEST_F(ApiContext, TakesItsOverheadAndGivesItBack) {
  EXPECT_EQ(FreeBytes(), kTestMemory - kTestContext);
  CUcontext second = nullptr;
  ASSERT_OK(cuCtxCreate_v4(&second, nullptr, 0, 0));
  EXPECT_EQ(FreeBytes(), kTestMemory - 2 * kTestContext);
  EXPECT_OK(cuCtxDestroy_v2(second));
  EXPECT_OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(FreeBytes(), kTestMemory - kTestContext);
}

TEST_F(ApiContext, DestroyFreesItsMemory) {
  CUcontext second = nullptr;
  ASSERT_OK(cuCtxCreate_v4(&second, nullptr, 0, 0));
  CUdeviceptr memory = 0;
  void* host = nullptr;
  EXPECT_OK(cuMemAlloc_v2(&memory, 64 << 20));
  EXPECT_OK(cuMemHostAlloc(&host, 4096, 0));
  EXPECT_OK(cuCtxDestroy_v2(second));
  EXPECT_OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(FreeBytes(), kTestMemory - kTestContext);
  CUdeviceptr base = 0;
  EXPECT_EQ(cuMemGetAddressRange_v2(&base, nullptr, memory), CUDA_ERROR_NOT_FOUND);
}

TEST_F(ApiContext, DoesNotFit) {
  CUdeviceptr memory = 0;
  ASSERT_OK(cuMemAlloc_v2(&memory, kTestMemory - kTestContext));
  CUcontext second = nullptr;
  EXPECT_EQ(cuCtxCreate_v4(&second, nullptr, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_OK(cuMemFree_v2(memory));
  EXPECT_OK(cuCtxCreate_v4(&second, nullptr, 0, 0));
  EXPECT_OK(cuCtxDestroy_v2(second));
}

TEST_F(ApiContext, PrimaryIsCounted) {
  CUcontext again = nullptr;
  EXPECT_OK(cuDevicePrimaryCtxRetain(&again, 0));
  EXPECT_EQ(again, context_);
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
  int active = 0;
  unsigned flags = 0;
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuCtxDestroy_v2(context_), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(ApiContext, ResetStartsAnew) {
  unsigned long long before = 0;
  EXPECT_OK(cuCtxGetId(context_, &before));
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(0));
  EXPECT_OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
  ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
  unsigned long long after = 0;
  unsigned flags = 0;
  EXPECT_OK(cuCtxGetId(context_, &after));
  EXPECT_NE(before, after);
  EXPECT_OK(cuCtxGetFlags(&flags));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_CTX_SCHED_YIELD));
  EXPECT_OK(cuDevicePrimaryCtxSetFlags_v2(0, 0));
}

TEST_F(ApiContext, EachThreadHasAStack) {
  std::thread([&] {
    CUcontext current = context_;
    EXPECT_OK(cuCtxGetCurrent(&current));
    EXPECT_EQ(current, nullptr);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxPopCurrent_v2(&current), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  CUcontext second = nullptr;
  ASSERT_OK(cuCtxCreate_v4(&second, nullptr, 0, 1));
  CUdevice device = -1;
  EXPECT_OK(cuCtxGetDevice(&device));
  EXPECT_EQ(device, 1);
  EXPECT_OK(cuCtxPushCurrent_v2(context_));
  CUcontext top = nullptr;
  EXPECT_OK(cuCtxPopCurrent_v2(&top));
  EXPECT_EQ(top, context_);
  EXPECT_OK(cuCtxDestroy_v2(second));
  EXPECT_OK(cuCtxGetCurrent(&top));
  EXPECT_EQ(top, context_);
  EXPECT_EQ(cuCtxPushCurrent_v2(second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(&second)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(ApiContext, LimitsAreKept) {
  EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  std::size_t value = 0;
  EXPECT_OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(value, 4096u);
  EXPECT_EQ(cuCtxGetLimit(&value, CU_LIMIT_MAX), CUDA_ERROR_UNSUPPORTED_LIMIT);
}

TEST_F(ApiContext, PeerAccessIsBookkeeping) {
  CUcontext peer = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&peer, 1));
  int can = 0;
  EXPECT_OK(cuDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  EXPECT_OK(cuCtxEnablePeerAccess(peer, 0));
  EXPECT_EQ(cuCtxEnablePeerAccess(peer, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_OK(cuCtxDisablePeerAccess(peer));
  EXPECT_EQ(cuCtxDisablePeerAccess(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(cuCtxEnablePeerAccess(context_, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(1));
}

// A green context of so many groups of the device's SMs.
CUgreenCtx MakeGreen(unsigned groups) {
  CUdevResource all;
  EXPECT_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  std::vector<CUdevResource> parts(groups);
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  EXPECT_OK(cuDevSmResourceSplitByCount(parts.data(), &groups, &all, nullptr, 0, 1));
  EXPECT_OK(cuDevResourceGenerateDesc(&description, parts.data(), groups));
  EXPECT_OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  return green;
}

TEST_F(ApiContext, AGreenOneIsAPartOfThePrimaryOne) {
  const CUgreenCtx green = MakeGreen(3);
  CUdevResource its;
  EXPECT_OK(cuGreenCtxGetDevResource(green, &its, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(its.sm.smCount, 6u);
  CUcontext context = nullptr, current = nullptr;
  EXPECT_OK(cuCtxFromGreenCtx(&context, green));
  EXPECT_EQ(static_cast<void*>(context), static_cast<void*>(green));
  EXPECT_OK(cuCtxSetCurrent(context));
  EXPECT_OK(cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context);
  CUdeviceptr memory = 0;
  EXPECT_OK(cuMemAlloc_v2(&memory, 1 << 20));
  EXPECT_OK(cuCtxPushCurrent_v2(context_));
  EXPECT_OK(cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(current, context_);
  EXPECT_OK(cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(current, context);
  EXPECT_OK(cuCtxSetCurrent(context_));
  EXPECT_OK(cuGreenCtxDestroy(green));
  EXPECT_EQ(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_OK(cuMemFree_v2(memory));
}

TEST_F(ApiContext, AGreenOneKeepsThePrimaryOne) {
  const CUgreenCtx green = MakeGreen(1);
  EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
  int active = 0;
  unsigned flags = 0;
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  EXPECT_OK(cuGreenCtxDestroy(green));
  EXPECT_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
}

TEST_F(ApiContext, TheStreamsOfAGreenOneKeepNoOrderWithItsDefaultStream) {
  const CUgreenCtx green = MakeGreen(1);
  CUcontext context = nullptr;
  EXPECT_OK(cuCtxFromGreenCtx(&context, green));
  EXPECT_OK(cuCtxSetCurrent(context));
  CUstream stream = nullptr, refused = nullptr, made = nullptr;
  unsigned flags = 0;
  EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  EXPECT_OK(cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cuGreenCtxStreamCreate(&refused, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuGreenCtxStreamCreate(&made, green, CU_STREAM_NON_BLOCKING, 0));
  EXPECT_EQ(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);

  void* word = nullptr;
  EXPECT_OK(cuMemHostAlloc(&word, 4, CU_MEMHOSTALLOC_DEVICEMAP));
  CUdeviceptr memory = 0;
  EXPECT_OK(cuMemAlloc_v2(&memory, 4));
  const auto hold = [word](CUstream held) {
    *static_cast<volatile std::uint32_t*>(word) = 0;
    EXPECT_OK(cuStreamWaitValue32_v2(held, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  };
  const auto let_go = [word] {
    *static_cast<volatile std::uint32_t*>(word) = 1;
    EXPECT_OK(cuCtxSynchronize());
  };
  std::uint32_t read = 0;
  hold(stream);
  EXPECT_OK(cuMemcpyDtoH_v2(&read, memory, 4));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  let_go();
  hold(nullptr);
  EXPECT_OK(cuMemsetD32Async(memory, 1, 1, stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  let_go();

  EXPECT_OK(cuStreamDestroy_v2(made));
  EXPECT_OK(cuStreamDestroy_v2(stream));
  EXPECT_OK(cuMemFree_v2(memory));
  EXPECT_OK(cuMemFreeHost(word));
  EXPECT_OK(cuCtxSetCurrent(context_));
  EXPECT_OK(cuGreenCtxDestroy(green));
}

TEST_F(ApiContext, SmsAreSplitIntoGroups) {
  CUdevResource all, rest;
  unsigned count = 0;
  EXPECT_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_OK(cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, 3));
  EXPECT_EQ(count, all.sm.smCount / 4);
  CUdevResource one;
  count = 1;
  EXPECT_OK(cuDevSmResourceSplitByCount(&one, &count, &all, &rest, 0, 3));
  EXPECT_EQ(one.sm.smCount, 4u);
  EXPECT_EQ(rest.sm.smCount, all.sm.smCount - 4);
  EXPECT_EQ(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_INVALID), CUDA_ERROR_INVALID_RESOURCE_TYPE);
  CUdevResourceDesc description = nullptr;
  rest.type = CU_DEV_RESOURCE_TYPE_INVALID;
  EXPECT_EQ(cuDevResourceGenerateDesc(&description, &rest, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
}

}  // namespace
}  // namespace tessera::soft
