#include "server/handover/direct_way.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "server/testing/pool_gpu.h"
#include "wire/line.h"

namespace tessera::server {
namespace {

using wire::kChunkBytes;
using wire::MoverMessage;
using wire::MoverType;

class DirectWayTest : public testing::Test {
 protected:
  DirectWayTest() { Open(18 * kChunkBytes - 1); }

  void Open(std::uint64_t bytes) {
    way_.reset();
    from_.TakeHeard();
    to_.TakeHeard();
    way_.emplace(from_.Side(), to_.Side(), PoolGpu::kOwner, bytes);
  }
  // The only thing that a mover has heard, about the program.
  static MoverMessage Only(PoolGpu& gpu) {
    const auto heard = gpu.TakeHeard();
    EXPECT_EQ(heard.size(), 1u);
    if (heard.empty()) return {};
    EXPECT_EQ(heard[0].program, static_cast<std::uint64_t>(PoolGpu::kOwner));
    return heard[0];
  }
  void SayMade(std::uint64_t number) {
    to_.slots.Keep(number, UniqueFd(memfd_create("slot", MFD_CLOEXEC)));
    to_.Say({.type = MoverType::kTransitMade, .program = PoolGpu::kOwner, .bytes = number});
  }
  void SayEnd(int error = 0) { to_.Say({.type = MoverType::kTransitEnd, .error = error, .program = PoolGpu::kOwner}); }
  void SayMapped(std::uint64_t number, int error = 0) {
    from_.Say({.type = MoverType::kSlotTaken, .error = error, .bytes = number});
  }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Create().value();
  PoolGpu from_{*loop_}, to_{*loop_};
  std::optional<DirectWay> way_;
};

TEST_F(DirectWayTest, IsOpenWhenTheFirstMoverHasMappedWhatTheSecondOneMade) {
  std::uint64_t number = 1;
  for (const std::uint64_t count : {16, 2}) {
    const MoverMessage make = Only(to_);
    EXPECT_TRUE(make.type == MoverType::kMakeTransit && make.bytes == count * kChunkBytes);
    for (std::uint64_t i = 0; i < count; ++i, ++number) {
      SayMade(number);
      const MoverMessage take = Only(from_);
      EXPECT_TRUE(take.type == MoverType::kTransitFor && take.bytes == number);
      EXPECT_TRUE(from_.slots.Has(number) && to_.slots.Has(number)) << "the next mover of either has it";
    }
    SayEnd();
    EXPECT_TRUE(to_.TakeHeard().empty()) << "they are mapped first";
    EXPECT_FALSE(way_->Settled());
    for (std::uint64_t i = number - count; i < number; ++i) SayMapped(i);
  }
  EXPECT_TRUE(way_->Settled());
  EXPECT_EQ(way_->Bytes(), 18 * kChunkBytes);
  way_.reset();
  EXPECT_EQ(Only(from_).type, MoverType::kTransitOver);
  EXPECT_EQ(Only(to_).type, MoverType::kTransitOver);
}

TEST_F(DirectWayTest, IsAsLongAsTheNewGpuHasMemory) {
  SayMade(1);
  SayEnd(ENOMEM);
  EXPECT_TRUE(way_->Settled());
  SayMapped(1);
  EXPECT_EQ(way_->Bytes(), kChunkBytes);
}

TEST_F(DirectWayTest, IsNoneWhereTheGpusCannotReachEachOther) {
  SayMade(1);
  SayMade(2);
  SayMapped(1, EINVAL);
  EXPECT_TRUE(way_->Settled());
  EXPECT_EQ(way_->Bytes(), 0u);
  EXPECT_FALSE(from_.slots.Has(1)) << "no mover of that GPU has it";
}

TEST_F(DirectWayTest, EndsWithEitherMover) {
  for (PoolGpu* gpu : {&from_, &to_}) {
    Open(4 * kChunkBytes);
    EXPECT_FALSE(way_->Settled());
    gpu->say(nullptr);
    EXPECT_TRUE(way_->Settled());
    gpu->link.Reap();
    gpu->link.Ensure(10 * kSecond);
    gpu->Say({.type = MoverType::kReady});
  }
}

TEST_F(DirectWayTest, OthersAreNoneOfItsBusiness) {
  to_.Say({.type = MoverType::kTransitMade, .program = PoolGpu::kOwner + 1, .bytes = 5});
  to_.Say({.type = MoverType::kTransitEnd, .error = ENOMEM, .program = PoolGpu::kOwner + 1});
  from_.Say({.type = MoverType::kSlotTaken, .error = EINVAL, .bytes = 5});
  EXPECT_FALSE(way_->Settled());
  EXPECT_TRUE(from_.TakeHeard().empty());
}

}  // namespace
}  // namespace tessera::server
