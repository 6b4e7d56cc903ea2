#include "server/swap/swap_slots.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "wire/line.h"
#include "wire/swap_table.h"

namespace tessera::server {
namespace {

UniqueFd SlotMemory() { return UniqueFd(memfd_create("slot", MFD_CLOEXEC)); }

TEST(SwapSlots, HasAnEntryForEachChunk) {
  const auto slots = SwapSlots::Make(2 * wire::kChunkBytes + 1);
  ASSERT_TRUE(slots);
  struct stat status{};
  ASSERT_EQ(fstat(slots->table(), &status), 0);
  EXPECT_EQ(status.st_size, static_cast<off_t>(3 * wire::kTableEntryBytes));
}

TEST(SwapSlots, GivesWhatItKeepsOneAfterTheOther) {
  auto slots = SwapSlots::Make(8 * wire::kChunkBytes);
  ASSERT_TRUE(slots);
  EXPECT_FALSE(slots->After(0));
  for (const std::uint64_t number : {7u, 3u, 5u}) slots->Keep(number, SlotMemory());
  slots->Forget(5);
  slots->Forget(6);
  slots->Keep(9, UniqueFd());  // its descriptor did not arrive
  EXPECT_EQ(slots->After(0)->number, 3u);
  EXPECT_EQ(slots->After(3)->number, 7u);
  EXPECT_GE(slots->After(3)->memory, 0);
  EXPECT_FALSE(slots->After(7));
}

TEST(SwapSlots, AnEarlierTableGrowsAndNeverShrinks) {
  auto slots = SwapSlots::Make(2 * wire::kChunkBytes);
  ASSERT_TRUE(slots);
  struct stat status{};
  for (const std::uint64_t chunks : {5u, 1u}) {
    slots->Fit(chunks * wire::kChunkBytes);
    ASSERT_EQ(fstat(slots->table(), &status), 0);
    EXPECT_EQ(status.st_size, static_cast<off_t>(5 * wire::kTableEntryBytes));
  }
}

TEST(SwapSlots, LeavesDescriptorsForOthers) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit little = before;
  little.rlim_cur = 80;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &little), 0);
  auto slots = SwapSlots::Make(100 * wire::kChunkBytes), others = SwapSlots::Make(100 * wire::kChunkBytes);
  ASSERT_TRUE(slots && others);
  for (std::uint64_t number = 1; number <= 15; ++number) slots->Keep(number, SlotMemory());
  for (std::uint64_t number = 1; number <= 15; ++number) others->Keep(number, SlotMemory());
  EXPECT_EQ(slots->count(), 15u);
  EXPECT_EQ(others->count(), 5u);
  slots->Forget(1);
  others->Keep(20, SlotMemory());
  EXPECT_EQ(others->count(), 6u);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace tessera::server
