#include "server/gpu/quota_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tessera::server {
namespace {

// Each has an MPS server and its control daemon.
TEST(QuotaKeeper, AUserHasAsManySpacesThatLastAsVGpus) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop);
  VGpuTable::Gpus gpus;
  const VGpuTable table(**loop, gpus, [] {});
  const std::vector<Quota> quotas = {{.name = "default", .bounds = {.vgpus = 2}}};
  const QuotaKeeper keeper(quotas, table, gpus);
  const Caller user = {.role = Caller::Role::kUser, .uid = 1000, .groups = {}};
  EXPECT_TRUE(keeper.AdmitSpace(user, 1));
  const auto refused = keeper.AdmitSpace(user, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EDQUOT);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("spaces that last (as vgpus) of 2"));
  EXPECT_TRUE(keeper.AdmitSpace({.role = Caller::Role::kOperator, .uid = 0, .groups = {}}, 100));
}

}  // namespace
}  // namespace tessera::server
