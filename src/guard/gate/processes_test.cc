#include "guard/gate/processes.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "base/testing/bystander.h"

namespace tessera::guard {
namespace {

// Two supervisors of one user's programs share the number.
TEST(Processes, OnlySoManyOfAUserAreBehindGates) {
  const auto budget = std::make_shared<std::atomic<std::int64_t>>(2);
  const Bystander bystanders[3];
  const pid_t pids[] = {bystanders[0].Pid(), bystanders[1].Pid(), bystanders[2].Pid()};
  auto one = Processes::Create(budget);
  ASSERT_TRUE(one);
  {
    auto other = Processes::Create(budget);
    ASSERT_TRUE(other);
    EXPECT_NE(one->Of(pids[0], 1), nullptr);
    EXPECT_NE(one->Of(pids[0], 1), nullptr) << "it is known already";
    EXPECT_NE(other->Of(pids[1], 1), nullptr);
    EXPECT_EQ(*budget, 0);
    EXPECT_EQ(other->Of(pids[2], 1), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    one->Forget(pids[0]);
    EXPECT_NE(other->Of(pids[2], 1), nullptr);
    EXPECT_EQ(one->Of(pids[0], 1), nullptr);
  }
  EXPECT_EQ(*budget, 2) << "all is given back with the supervisor";
  EXPECT_NE(one->Of(pids[0], 1), nullptr);
}

}  // namespace
}  // namespace tessera::guard
