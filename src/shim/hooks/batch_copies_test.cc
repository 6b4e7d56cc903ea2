// Batches of copies: those between the pager's memory on two GPUs are made by calls that name both contexts, and the
// driver's batch has the rest.
#include <gtest/gtest.h>

#include <vector>

#include "shim/testing/gpu_with_block.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                                std::size_t*, std::size_t, std::size_t*, CUstream);
TESSERA_HOOK cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                                        std::size_t*, std::size_t, CUstream);
TESSERA_HOOK cuMemcpy3DBatchAsync(std::size_t, CUDA_MEMCPY3D_BATCH_OP*, std::size_t*, unsigned long long, CUstream);
TESSERA_HOOK cuMemcpy3DBatchAsync_v2_ptsz(std::size_t, CUDA_MEMCPY3D_BATCH_OP*, unsigned long long, CUstream);

namespace tessera::shim {
namespace {

// What the fake driver was asked for.
struct Asked {
  std::vector<CUdeviceptr> plain;                          // destinations in its batches
  std::vector<std::size_t> starts;                         // of the attributes
  std::vector<int> orders;                                 // of the attributes
  std::vector<std::pair<CUdeviceptr, CUdeviceptr>> peers;  // destination and source
  std::vector<std::pair<CUcontext, CUcontext>> contexts;   // of these
  CUDA_MEMCPY3D_PEER volume{};                             // the last one
  int batches = 0, synchronized = 0;
  CUdeviceptr fails = 0;  // a destination
} asked;

CUresult Batch12(CUdeviceptr* to, CUdeviceptr*, std::size_t*, std::size_t count, CUmemcpyAttributes* attributes,
                 std::size_t* starts, std::size_t kinds, std::size_t* failed, CUstream) {
  ++asked.batches;
  asked.plain.assign(to, to + count);
  asked.starts.assign(starts, starts + kinds);
  asked.orders.clear();
  for (std::size_t i = 0; i < kinds; ++i) asked.orders.push_back(attributes[i].srcAccessOrder);
  for (std::size_t i = 0; i < count; ++i) {
    if (to[i] != asked.fails) continue;
    if (failed) *failed = i;
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}
CUresult Batch13(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count, CUmemcpyAttributes* kind,
                 std::size_t* starts, std::size_t kinds, CUstream stream) {
  return Batch12(to, from, sizes, count, kind, starts, kinds, nullptr, stream);
}
CUresult Volumes12(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, std::size_t*, unsigned long long, CUstream) {
  ++asked.batches;
  asked.plain.clear();
  for (std::size_t i = 0; i < count; ++i) asked.plain.push_back(copies[i].dst.op.ptr.ptr);
  return CUDA_SUCCESS;
}
CUresult Volumes13(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags, CUstream stream) {
  return Volumes12(count, copies, nullptr, flags, stream);
}
CUresult Peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t, CUstream) {
  asked.peers.emplace_back(to, from);
  asked.contexts.emplace_back(to_context, from_context);
  return to == asked.fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult PeerVolume(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  asked.volume = *copy;
  return Peer(copy->dstDevice, copy->dstContext, copy->srcDevice, copy->srcContext, copy->WidthInBytes, stream);
}
CUresult Synchronize(CUstream) { return ++asked.synchronized, CUDA_SUCCESS; }

class BatchCopiesTest : public GpuWithBlock {
 protected:
  BatchCopiesTest() {
    Cuda().Put(k_cuMemcpyBatchAsync, &Batch12);
    Cuda().Put(k_cuMemcpyBatchAsync_v2_ptsz, &Batch13);
    Cuda().Put(k_cuMemcpy3DBatchAsync, &Volumes12);
    Cuda().Put(k_cuMemcpy3DBatchAsync_v2_ptsz, &Volumes13);
    Cuda().Put(k_cuMemcpyPeerAsync, &Peer);
    Cuda().Put(k_cuMemcpyPeerAsync_ptsz, &Peer);
    Cuda().Put(k_cuMemcpy3DPeerAsync, &PeerVolume);
    Cuda().Put(k_cuMemcpy3DPeerAsync_ptsz, &PeerVolume);
    Cuda().Put(k_cuStreamSynchronize, &Synchronize);
    // Copies 0, 2 and 3 stay on this GPU, 1 and 4 come from the other one.
    for (std::size_t i = 0; i < kCopies; ++i) {
      to[i] = address + i * 64;
      from[i] = (i == 1 || i == 4 ? other.address : address) + 4096 + i * 64;
    }
    asked = {};
  }

  CUresult Copy(std::size_t* failed = nullptr) {
    return cuMemcpyBatchAsync(to, from, sizes, kCopies, attributes, starts, 3, failed, CU_STREAM_PER_THREAD);
  }
  static CUDA_MEMCPY3D_BATCH_OP Volume(CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY3D_BATCH_OP copy{};
    copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    copy.src.op.ptr = {.ptr = from, .rowLength = 32, .layerHeight = 5};
    copy.dst.op.ptr = {.ptr = to};
    copy.extent = {16, 4, 2};
    copy.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    return copy;
  }

  static constexpr std::size_t kCopies = 5;
  GpuWithBlock other;
  CUdeviceptr to[kCopies], from[kCopies];
  std::size_t sizes[kCopies] = {8, 8, 8, 8, 8};
  CUmemcpyAttributes attributes[3] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM},
                                      {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY},
                                      {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}};
  std::size_t starts[3] = {0, 1, 3};
};

TEST_F(BatchCopiesTest, ThoseBetweenGpusNameContextsAndTheRestStaysABatch) {
  FakeCuda::SetCurrent(context);
  EXPECT_EQ(Copy(), CUDA_SUCCESS);
  EXPECT_EQ(asked.batches, 1);
  EXPECT_EQ(asked.plain, (std::vector<CUdeviceptr>{to[0], to[2], to[3]}));
  EXPECT_EQ(asked.starts, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(asked.peers, (std::vector<std::pair<CUdeviceptr, CUdeviceptr>>{{to[1], from[1]}, {to[4], from[4]}}));
  for (const auto& named : asked.contexts) EXPECT_EQ(named, std::pair(context, other.context));
  EXPECT_EQ(asked.synchronized, 0);
}

TEST_F(BatchCopiesTest, AttributesWithoutCopiesAreLeftOut) {
  FakeCuda::SetCurrent(context);
  starts[1] = 1;
  starts[2] = 2;
  EXPECT_EQ(cuMemcpyBatchAsync_v2_ptsz(to, from, sizes, kCopies, attributes, starts, 3, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(asked.plain, (std::vector<CUdeviceptr>{to[0], to[2], to[3]}));
  EXPECT_EQ(asked.starts, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(asked.orders, (std::vector<int>{CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}));
  EXPECT_EQ(asked.peers.size(), 2u);
}

TEST_F(BatchCopiesTest, TheCopyThatFailedIsNamedByItsPlaceInTheWhole) {
  FakeCuda::SetCurrent(context);
  std::size_t failed = 77;
  asked.fails = to[3];
  EXPECT_EQ(Copy(&failed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, 3u);
  asked.fails = to[4];
  EXPECT_EQ(Copy(&failed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, 4u);
}

TEST_F(BatchCopiesTest, ASourceThatMayEndWithTheCallIsReadByThen) {
  FakeCuda::SetCurrent(context);
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  EXPECT_EQ(Copy(), CUDA_SUCCESS);
  EXPECT_EQ(asked.synchronized, 1);
}

TEST_F(BatchCopiesTest, WhatIsWrongTheDriverSays) {
  FakeCuda::SetCurrent(context);
  EXPECT_EQ(cuMemcpyBatchAsync(to, from, sizes, kCopies, attributes, starts, 3, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(asked.plain.size(), kCopies) << "the legacy stream";
  starts[0] = 1;
  EXPECT_EQ(Copy(), CUDA_SUCCESS);
  EXPECT_EQ(asked.plain.size(), kCopies) << "attributes that are not in order";
  EXPECT_TRUE(asked.peers.empty());
}

TEST_F(BatchCopiesTest, OnOneGpuTheBatchStaysAsItIs) {
  FakeCuda::SetCurrent(context);
  from[1] = from[4] = address;
  EXPECT_EQ(Copy(), CUDA_SUCCESS);
  EXPECT_EQ(asked.plain.size(), kCopies);
  EXPECT_TRUE(asked.peers.empty());
}

TEST_F(BatchCopiesTest, VolumesToo) {
  FakeCuda::SetCurrent(context);
  CUDA_MEMCPY3D_BATCH_OP copies[] = {Volume(to[0], from[0]), Volume(to[1], from[1]), Volume(to[2], from[2])};
  EXPECT_EQ(cuMemcpy3DBatchAsync(3, copies, nullptr, 0, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(asked.plain, (std::vector<CUdeviceptr>{to[0], to[2]}));
  ASSERT_EQ(asked.peers.size(), 1u);
  EXPECT_EQ(asked.contexts[0], std::pair(context, other.context));
  EXPECT_EQ(asked.volume.srcPitch, 32u);
  EXPECT_EQ(asked.volume.srcHeight, 5u);
  EXPECT_EQ(asked.volume.dstPitch, 16u);
  EXPECT_EQ(asked.volume.dstHeight, 4u);
  EXPECT_EQ(asked.volume.WidthInBytes, 16u);
  EXPECT_EQ(asked.volume.Height, 4u);
  EXPECT_EQ(asked.volume.Depth, 2u);
}

TEST_F(BatchCopiesTest, VolumesThatAreWrongTheDriverRefuses) {
  FakeCuda::SetCurrent(context);
  CUDA_MEMCPY3D_BATCH_OP copies[] = {Volume(to[1], from[1]), Volume(to[4], from[4])};
  copies[0].src.op.ptr.rowLength = 8;  // less than the width
  copies[1].extent.depth = 0;
  EXPECT_EQ(cuMemcpy3DBatchAsync_v2_ptsz(2, copies, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(asked.plain.size(), 2u);
  EXPECT_TRUE(asked.peers.empty());
}

}  // namespace
}  // namespace tessera::shim
