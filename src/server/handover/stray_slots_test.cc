#include "server/handover/stray_slots.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "server/testing/pool_gpu.h"

namespace tessera::server {
namespace {

using wire::MoverMessage;
using wire::MoverType;
using wire::SwapEntry;

class StraySlotsTest : public testing::Test {
 protected:
  static constexpr pid_t kOwner = PoolGpu::kOwner;
  StraySlotsTest() {
    for (const std::uint64_t number : {1, 2}) {
      for (PoolGpu* gpu : {&first_, &second_}) gpu->Put(number, SwapEntry::kParked | SwapEntry::kShared);
    }
    second_.Put(3, SwapEntry::kParked);  // of another time
  }
  StraySlots::Pool PoolOf(PoolGpu& gpu) {
    return {.link = &gpu.link,
            .side = [&gpu] { return std::optional(gpu.Side()); },
            .uses = [this, &gpu](pid_t pid) { return pid == kOwner && used_.contains(&gpu); }};
  }
  void SayClaimed(PoolGpu& gpu) {
    gpu.Say({.type = MoverType::kClaimed, .bytes = kOwner});
    EXPECT_TRUE(loop_->Run());
  }
  void ExpectKept(PoolGpu& gpu, std::size_t slots) {
    EXPECT_TRUE(gpu.TakeHeard().empty());
    EXPECT_EQ(gpu.slots.count(), slots);
  }
  void ExpectLetGo(PoolGpu& gpu, std::size_t slots) {
    const auto heard = gpu.TakeHeard();
    ASSERT_EQ(heard.size(), 2u);
    for (const std::uint64_t number : {1, 2})
      EXPECT_TRUE(heard[number - 1].type == MoverType::kLetGo && heard[number - 1].bytes == number);
    EXPECT_EQ(gpu.slots.count(), slots);
  }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Create().value();
  PoolGpu first_{*loop_, 0}, second_{*loop_, 1};
  std::set<const PoolGpu*> used_{&first_};
  std::function<bool()> travels_ = [] { return false; };
  StraySlots strays_{*loop_, {PoolOf(first_), PoolOf(second_)}, [this](pid_t) {
                       const bool travels = travels_();
                       if (!travels) loop_->Stop();
                       return travels;
                     }};
};

TEST_F(StraySlotsTest, LeaveThePoolsOfGpusThatTheProgramIsNotOnWhenItHasNamedAll) {
  SayClaimed(first_);
  ExpectKept(first_, 2);
  ExpectLetGo(second_, 1);
}

TEST_F(StraySlotsTest, StayWhereTheProgramIs) {
  used_.insert(&second_);
  SayClaimed(first_);
  ExpectKept(first_, 2);
  ExpectKept(second_, 3);
}

TEST_F(StraySlotsTest, OfAProgramThatIsNowhereStay) {
  used_.clear();
  SayClaimed(first_);
  ExpectKept(first_, 2);
  ExpectKept(second_, 3);
}

TEST_F(StraySlotsTest, StayWhileAMigrationTakesTheProgramAlong) {
  travels_ = [this, asked = 0]() mutable {
    ExpectKept(first_, 2);
    ExpectKept(second_, 3);
    used_ = {&second_};  // where it is in the end
    return ++asked < 3;
  };
  SayClaimed(first_);
  ExpectLetGo(first_, 0);
  ExpectKept(second_, 3);
}

}  // namespace
}  // namespace tessera::server
