// Copies between the pager's memory on two GPUs name the contexts of both; all others stay as they are.
#include <gtest/gtest.h>

#include "shim/testing/gpu_with_block.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuCtxEnablePeerAccess(CUcontext, unsigned);
TESSERA_HOOK cuMemcpy(CUdeviceptr, CUdeviceptr, std::size_t);
TESSERA_HOOK cuMemcpyDtoD_v2_ptds(CUdeviceptr, CUdeviceptr, std::size_t);
TESSERA_HOOK cuMemcpyAsync(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
TESSERA_HOOK cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr, CUdeviceptr, std::size_t, CUstream);
TESSERA_HOOK cuMemcpy2D_v2(const CUDA_MEMCPY2D*);
TESSERA_HOOK cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D*, CUstream);

namespace tessera::shim {
namespace {

enum class Made { kNone, kPlain, kPeer };
Made made;
CUcontext to_context, from_context;

CUresult Plain(CUdeviceptr, CUdeviceptr, std::size_t) { return made = Made::kPlain, CUDA_SUCCESS; }
CUresult PlainAsync(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) { return made = Made::kPlain, CUDA_SUCCESS; }
CUresult Plane(const CUDA_MEMCPY2D*) { return made = Made::kPlain, CUDA_SUCCESS; }
CUresult VolumeAsync(const CUDA_MEMCPY3D*, CUstream) { return made = Made::kPlain, CUDA_SUCCESS; }
CUresult PlainPeer(CUdeviceptr, CUcontext to, CUdeviceptr, CUcontext from, std::size_t) {
  made = Made::kPeer;
  to_context = to;
  from_context = from;
  return CUDA_SUCCESS;
}
CUresult PeerAsync(CUdeviceptr to, CUcontext tos, CUdeviceptr from, CUcontext froms, std::size_t bytes, CUstream) {
  return PlainPeer(to, tos, from, froms, bytes);
}
CUresult PlainPeerVolume(const CUDA_MEMCPY3D_PEER* copy) {
  return PlainPeer(copy->dstDevice, copy->dstContext, copy->srcDevice, copy->srcContext, copy->WidthInBytes);
}
CUresult PeerVolumeAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream) { return PlainPeerVolume(copy); }
CUresult Allowed(CUcontext, unsigned) { return CUDA_SUCCESS; }

class PeerCopiesTest : public GpuWithBlock {
 protected:
  PeerCopiesTest() {
    FakeCuda::SetCurrent(context);
    Cuda().Put(k_cuMemcpy, &Plain);
    Cuda().Put(k_cuMemcpyDtoD_v2_ptds, &Plain);
    Cuda().Put(k_cuMemcpyAsync, &PlainAsync);
    Cuda().Put(k_cuMemcpyDtoDAsync_v2_ptsz, &PlainAsync);
    Cuda().Put(k_cuMemcpy2D_v2, &Plane);
    Cuda().Put(k_cuMemcpy3DAsync_v2, &VolumeAsync);
    Cuda().Put(k_cuMemcpyPeer, &PlainPeer);
    Cuda().Put(k_cuMemcpyPeer_ptds, &PlainPeer);
    Cuda().Put(k_cuMemcpyPeerAsync, &PeerAsync);
    Cuda().Put(k_cuMemcpyPeerAsync_ptsz, &PeerAsync);
    Cuda().Put(k_cuMemcpy3DPeer, &PlainPeerVolume);
    Cuda().Put(k_cuMemcpy3DPeerAsync, &PeerVolumeAsync);
    Cuda().Put(k_cuCtxEnablePeerAccess, &Allowed);
    made = Made::kNone;
  }

  void ExpectBetween(CUresult result) {
    EXPECT_EQ(result, CUDA_SUCCESS);
    EXPECT_EQ(made, Made::kPeer);
    EXPECT_EQ(to_context, context);
    EXPECT_EQ(from_context, other.context);
    made = Made::kNone;
  }

  GpuWithBlock other;
};

TEST_F(PeerCopiesTest, LinearOnesNameBothContexts) {
  ExpectBetween(cuMemcpy(address, other.address, 8));
  ExpectBetween(cuMemcpyDtoD_v2_ptds(address, other.address, 8));
  ExpectBetween(cuMemcpyAsync(address, other.address, 8, nullptr));
  ExpectBetween(cuMemcpyDtoDAsync_v2_ptsz(address, other.address, 8, nullptr));
}

TEST_F(PeerCopiesTest, ShapedOnesToo) {
  const CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = other.address,
                               .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                               .dstDevice = address,
                               .WidthInBytes = 8,
                               .Height = 1};
  ExpectBetween(cuMemcpy2D_v2(&plane));
  const CUDA_MEMCPY3D volume = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = other.address,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = address,
                                .WidthInBytes = 8,
                                .Height = 1,
                                .Depth = 1};
  ExpectBetween(cuMemcpy3DAsync_v2(&volume, nullptr));
}

TEST_F(PeerCopiesTest, OnOneGpuTheCopyStaysAsItIs) {
  EXPECT_EQ(cuMemcpy(address, address + 64, 8), CUDA_SUCCESS);
  EXPECT_EQ(made, Made::kPlain);
}

TEST_F(PeerCopiesTest, BothOnAGpuThatIsNotCurrent) {
  EXPECT_EQ(cuMemcpy(other.address, other.address + 64, 8), CUDA_SUCCESS);
  EXPECT_EQ(made, Made::kPeer);
  EXPECT_EQ(to_context, other.context);
  EXPECT_EQ(from_context, other.context);
}

TEST_F(PeerCopiesTest, MemoryOfPoolsHasTheContextOfItsGpu) {
  CUdeviceptr mine = 0, others = 0;
  EXPECT_EQ(cuMemAllocAsync(&mine, 64 * kMiB, nullptr), CUDA_SUCCESS);
  FakeCuda::SetCurrent(other.context);
  EXPECT_EQ(cuMemAllocAsync(&others, 64 * kMiB, nullptr), CUDA_SUCCESS);
  FakeCuda::SetCurrent(context);
  EXPECT_EQ(cuMemcpy(mine, others, 8), CUDA_SUCCESS);
  EXPECT_EQ(made, Made::kPeer);
  EXPECT_EQ(to_context, context);
  EXPECT_EQ(from_context, other.context);
}

TEST_F(PeerCopiesTest, WithPeerAccessItStaysAsItIs) {
  EXPECT_EQ(cuCtxEnablePeerAccess(other.context, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyAsync(address, other.address, 8, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(made, Made::kPlain);
}

TEST_F(PeerCopiesTest, HostMemoryAndForeignAddressesAreTheDriversBusiness) {
  EXPECT_EQ(cuMemcpy(other.address, 0x1234, 8), CUDA_SUCCESS);
  EXPECT_EQ(made, Made::kPlain);
}

}  // namespace
}  // namespace tessera::shim
