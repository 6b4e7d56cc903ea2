// The soft GPUs of a test program: its own, gone with it.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "soft/shared/shared_state.h"
#include "soft/testing/test_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

class OwnSoftGpus : public testing::Environment {
 public:
  OwnSoftGpus() {
    setenv("TESSERA_SOFT_NAME", ("test-" + std::to_string(getpid())).c_str(), 1);
    setenv("TESSERA_SOFT", "2x256MiB,context=8MiB,pcie=20GB/s,speed=1G", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override { unlink(SharedState::DefaultPath().c_str()); }
};

[[maybe_unused]] const testing::Environment* const own_soft_gpus = testing::AddGlobalTestEnvironment(new OwnSoftGpus);

}  // namespace

void SoftApiTest::SetUp() {
  ASSERT_OK(cuInit(0));
  ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_OK(cuCtxSetCurrent(context_));
}

void SoftApiTest::TearDown() {
  EXPECT_OK(cuCtxSetCurrent(nullptr));
  EXPECT_OK(cuDevicePrimaryCtxReset_v2(0));
}

std::size_t SoftApiTest::FreeBytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_OK(cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(total, kTestMemory);
  return free;
}

}  // namespace tessera::soft
