// The driver's cuInit for a program in a space, as a driver that does what the test says answers it.
#include "shim/session/mps_client.h"

#include <string.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "shim/load/real.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using namespace cuda;
using testing::HasSubstr;

// What the driver answers. `inits` is used up from the front, but for its last one.
struct Driver {
  std::vector<CUresult> inits = {CUDA_SUCCESS};
  std::vector<unsigned> flags;
  CUresult counted = CUDA_SUCCESS, got = CUDA_SUCCESS, asked = CUDA_SUCCESS;
  int devices = 1, client = 1;
};
Driver driver;

CUresult Init(unsigned flags) {
  driver.flags.push_back(flags);
  const CUresult result = driver.inits.front();
  if (driver.inits.size() > 1) driver.inits.erase(driver.inits.begin());
  return result;
}
CUresult Count(int* count) { return *count = driver.devices, driver.counted; }
CUresult Get(CUdevice* device, int number) { return *device = number, driver.got; }
CUresult Attribute(int* value, int attribute, CUdevice) {
  EXPECT_EQ(attribute, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
  return *value = driver.client, driver.asked;
}

class MpsClientTest : public ShimFixture {
 protected:
  static constexpr unsigned kSymbols[] = {k_cuInit, k_cuDeviceGetCount, k_cuDeviceGet, k_cuDeviceGetAttribute};

  MpsClientTest() : ShimFixture(false) {
    for (const unsigned symbol : kSymbols) before_.push_back(tessera_real_table[symbol]);
    driver = {};
    Cuda().Put(k_cuInit, &Init);
    Cuda().Put(k_cuDeviceGetCount, &Count);
    Cuda().Put(k_cuDeviceGet, &Get);
    Cuda().Put(k_cuDeviceGetAttribute, &Attribute);
    wire::SetText(terms_.space, "a");
  }
  ~MpsClientTest() override {
    for (std::size_t n = 0; n < before_.size(); ++n) tessera_real_table[kSymbols[n]] = before_[n];
  }

  CUresult Enter(unsigned flags = 0) {
    testing::internal::CaptureStderr();
    const CUresult result = InitInSpace(terms_, flags);
    said_ = testing::internal::GetCapturedStderr();
    return result;
  }

  wire::Welcome terms_;
  std::string said_;

 private:
  std::vector<void*> before_;
};

TEST_F(MpsClientTest, AClientIsLetIn) {
  EXPECT_EQ(Enter(5), CUDA_SUCCESS);
  EXPECT_EQ(driver.flags, std::vector{5u});
  EXPECT_EQ(said_, "");
}

TEST_F(MpsClientTest, ItWaitsForTheServer) {
  driver.inits = {CUDA_ERROR_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_SERVER_NOT_READY, CUDA_SUCCESS};
  EXPECT_EQ(Enter(), CUDA_SUCCESS);
  EXPECT_EQ(driver.flags.size(), 3u);
  EXPECT_EQ(said_, "");
}

TEST_F(MpsClientTest, AnotherErrorIsNotWaitedFor) {
  driver.inits = {CUDA_ERROR_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_CONNECTION_FAILED, CUDA_SUCCESS};
  EXPECT_EQ(Enter(), CUDA_ERROR_MPS_CONNECTION_FAILED);
  EXPECT_EQ(driver.flags.size(), 2u);
  EXPECT_THAT(said_, HasSubstr("cannot enter space a: the MPS server refuses the program (CUDA error 805)"));
}

// The driver says nothing when a program runs outside of MPS.
TEST_F(MpsClientTest, WhoeverIsNoClientGetsNoGpu) {
  driver.client = 0;
  EXPECT_EQ(Enter(), CUDA_ERROR_NO_DEVICE);
  EXPECT_THAT(said_, HasSubstr("the program is no client of the MPS server of space a"));
}

TEST_F(MpsClientTest, WhereTheDriverDoesNotTellItIsNoClient) {
  driver.asked = CUDA_ERROR_INVALID_VALUE;  // it does not know the attribute
  EXPECT_EQ(Enter(), CUDA_ERROR_NO_DEVICE);
  driver.asked = CUDA_SUCCESS;
  driver.got = CUDA_ERROR_INVALID_DEVICE;
  EXPECT_EQ(Enter(), CUDA_ERROR_NO_DEVICE);
}

TEST_F(MpsClientTest, WithoutAGpuThereIsNothingToLimit) {
  driver.client = 0;
  driver.devices = 0;
  EXPECT_EQ(Enter(), CUDA_SUCCESS);
  driver.devices = 1;
  driver.counted = CUDA_ERROR_NO_DEVICE;
  EXPECT_EQ(Enter(), CUDA_SUCCESS);
}

// A field of the protocol is not trusted to end.
TEST_F(MpsClientTest, ANameThatDoesNotEndIsCut) {
  memset(terms_.space, 's', sizeof terms_.space);
  memset(terms_.mps_pipes, 'p', sizeof terms_.mps_pipes);
  const std::string name(sizeof terms_.space, 's');
  driver.client = 0;
  EXPECT_EQ(Enter(), CUDA_ERROR_NO_DEVICE);
  EXPECT_THAT(said_, HasSubstr("of space " + name + ", so"));
  driver.inits = {CUDA_ERROR_UNKNOWN};
  EXPECT_EQ(Enter(), CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(said_, testing::AllOf(HasSubstr("enter space " + name + ":"), HasSubstr("show " + name + "'")));
}

}  // namespace
}  // namespace tessera::shim
