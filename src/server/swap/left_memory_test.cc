#include "server/swap/left_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "server/swap/swap_slots.h"
#include "wire/line.h"

namespace tessera::server {
namespace {

using wire::kChunkBytes;

class LeftMemoryTest : public testing::Test {
 protected:
  LeftMemoryTest() {
    first_.Heed(left_);
    second_.Heed(left_);
  }
  static bool Keep(SwapSlots& slots, std::uint64_t number) {
    return slots.Keep(number, UniqueFd(memfd_create("slot", MFD_CLOEXEC)));
  }
  std::uint64_t On(std::uint32_t gpu, pid_t owner = 40) const {
    const auto bytes = left_.BytesOn(gpu);
    return bytes.contains(owner) ? bytes.at(owner) / kChunkBytes : 0;
  }

  LeftMemory left_;
  SwapSlots first_ = *SwapSlots::Make(8 * kChunkBytes), second_ = *SwapSlots::Make(8 * kChunkBytes);
};

TEST_F(LeftMemoryTest, CountsAsLongAsAnyPoolHasIt) {
  for (const std::uint64_t number : {1, 2}) {
    first_.NoteLeft(number, 3, 40);
    EXPECT_TRUE(Keep(first_, number));
  }
  EXPECT_TRUE(On(3) == 2 && On(2) == 0);
  EXPECT_TRUE(Keep(second_, 1));  // on its way to another GPU
  first_.Forget(1);
  EXPECT_EQ(On(3), 2u) << "it lies there still";
  second_.Forget(1);
  EXPECT_EQ(On(3), 1u);
  second_.Forget(2);
  EXPECT_EQ(On(3), 1u) << "that pool had it not";
  first_.Forget(2);
  EXPECT_EQ(On(3), 0u);
}

TEST_F(LeftMemoryTest, HostMemoryIsNoneOfIt) {
  EXPECT_TRUE(Keep(first_, 1));
  EXPECT_EQ(On(3), 0u);
  first_.Forget(1);
}

TEST_F(LeftMemoryTest, KnowsWhoseItIs) {
  first_.NoteLeft(1, 3, 40);
  first_.NoteLeft(2, 3, 41);
  EXPECT_TRUE(Keep(first_, 1) && Keep(first_, 2));
  EXPECT_TRUE(On(3, 40) == 1 && On(3, 41) == 1 && On(3, 42) == 0);
}

}  // namespace
}  // namespace tessera::server
