#include "guard/request/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::guard {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using LeftOut = Refusals::LeftOut;

class RefusalsTest : public testing::Test {
 protected:
  // How many of `count` refusals of the program get a line; process 100 + tree makes them.
  unsigned Lines(std::uint64_t tree, unsigned count, Nanos now) {
    unsigned lines = 0;
    for (unsigned i = 0; i < count; ++i) {
      if (pid_t* process = refusals_.Admit(tree, now)) {
        *process = static_cast<pid_t>(100 + tree);
        ++lines;
      }
    }
    return lines;
  }
  Refusals refusals_;
};

TEST_F(RefusalsTest, AFewAreToldAndTheOthersCounted) {
  EXPECT_EQ(Lines(1, 1000, 7), Refusals::kMostPerSecond);
  EXPECT_EQ(refusals_.NextDue(), 7 + kSecond);
  EXPECT_THAT(refusals_.TakeDue(6 + kSecond), IsEmpty());
  EXPECT_THAT(refusals_.TakeDue(7 + kSecond), ElementsAre(LeftOut{101, 995}));
  EXPECT_EQ(refusals_.NextDue(), kNever);
  EXPECT_EQ(Lines(1, 3, 8 + kSecond), 3u) << "another second";
}

TEST_F(RefusalsTest, FewAreAllTold) {
  EXPECT_EQ(Lines(1, Refusals::kMostPerSecond, 0), Refusals::kMostPerSecond);
  EXPECT_EQ(refusals_.NextDue(), kNever) << "nothing to wake up for";
  EXPECT_EQ(Lines(1, 1, kSecond), 1u);
  EXPECT_FALSE(refusals_.Forget(1));
}

TEST_F(RefusalsTest, NoneIsLostWhileNobodyTakes) {
  EXPECT_EQ(Lines(1, 10, 0), 5u);
  EXPECT_EQ(Lines(1, 10, 3 * kSecond), 0u);
  EXPECT_THAT(refusals_.TakeDue(3 * kSecond), ElementsAre(LeftOut{101, 15}));
}

TEST_F(RefusalsTest, OneProgramDoesNotHideAnother) {
  EXPECT_EQ(Lines(1, 1000, 0), 5u);
  EXPECT_EQ(Lines(2, 7, kMillisecond), 5u);
  EXPECT_EQ(refusals_.NextDue(), kSecond);
  EXPECT_THAT(refusals_.TakeDue(kSecond), ElementsAre(LeftOut{101, 995}));
  EXPECT_EQ(refusals_.NextDue(), kSecond + kMillisecond);
  EXPECT_THAT(refusals_.TakeDue(kSecond + kMillisecond), ElementsAre(LeftOut{102, 2}));
}

TEST_F(RefusalsTest, TheEndTellsTheRest) {
  EXPECT_EQ(Lines(1, 8, 0), 5u);
  EXPECT_EQ(refusals_.Forget(1), (LeftOut{101, 3}));
  EXPECT_EQ(refusals_.NextDue(), kNever);
  EXPECT_FALSE(refusals_.Forget(1));
  EXPECT_FALSE(refusals_.Forget(2));
}

}  // namespace
}  // namespace tessera::guard
