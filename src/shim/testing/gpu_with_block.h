#pragma once

#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"

TESSERA_HOOK cuMemAlloc_v2(tessera::cuda::CUdeviceptr*, size_t);

namespace tessera::shim {

// A GPU whose memory is swapped, with a context and a block there; a test may have a second one as a member.
class GpuWithBlock : public ShimFixture {
 public:
  explicit GpuWithBlock(std::uint64_t bytes = 64 * kMiB) {
    Swap(wire::GateOrder::kFree);
    context = (Attached(), MakeContext());
    EXPECT_EQ(cuMemAlloc_v2(&address, bytes), cuda::CUDA_SUCCESS);
  }
  void TestBody() override {}

  cuda::CUcontext context = nullptr;
  cuda::CUdeviceptr address = 0;
};

}  // namespace tessera::shim
