#include "sched/residency/bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "base/testing/same_cases.h"

namespace tessera::sched {
namespace {

constexpr std::uint64_t kUnits = kSlotBytes / kLeastInSlot;

// What lies in each of some chunks, in the order in which they go out.
std::vector<std::uint64_t> AnyChunks() {
  const auto any = rc::gen::weightedOneOf<std::uint64_t>({{3, rc::gen::just(std::uint64_t{1})},
                                                          {2, rc::gen::inRange<std::uint64_t>(1, kUnits + 1)},
                                                          {1, rc::gen::just(kUnits)}});
  std::vector<std::uint64_t> chunks = *rc::gen::container<std::vector<std::uint64_t>>(any);
  for (std::uint64_t& units : chunks) units *= kLeastInSlot;
  return chunks;
}

RC_GTEST_PROP(SlotsPropertyTest, SufficeWhicheverChunksGoOut, ()) {
  const auto chunks = AnyChunks();
  std::uint64_t all = 0, blank = 0;
  for (const std::uint64_t bytes : chunks) {
    all += bytes;
    blank += kSlotBytes - bytes;
  }
  const std::uint64_t wanted = *rc::gen::inRange<std::uint64_t>(0, all + 1);
  std::uint64_t out = 0, slots = 0;
  for (std::size_t i = 0; out < wanted; ++i) {
    out += chunks[i];
    slots += kSlotBytes;
  }
  RC_ASSERT(slots <= SlotsFor(wanted, blank));
}

RC_GTEST_PROP(SlotsPropertyTest, WhatIsHeldIsTheMostThatSlotsSufficeFor, ()) {
  const std::uint64_t slots = *rc::gen::inRange<std::uint64_t>(0, 3000) * kSlotBytes;
  const std::uint64_t blank = *rc::gen::inRange<std::uint64_t>(0, 3000 * kUnits) * kLeastInSlot;
  const std::uint64_t held = HeldBySlots(slots, blank);
  RC_ASSERT(held <= slots);
  RC_ASSERT(SlotsFor(held, blank) <= slots);
  RC_ASSERT(SlotsFor(held + 1, blank) > slots);
}

TEST(SlotsTest, WithoutBlankOnesAllIsHeld) {
  EXPECT_EQ(HeldBySlots(10 * kSlotBytes, 0), 10 * kSlotBytes);
  EXPECT_EQ(SlotsFor(3 * kSlotBytes + 1, 0), 4 * kSlotBytes);
  EXPECT_EQ(SlotsFor(0, 77 * kSlotBytes), 0u);
  EXPECT_EQ(HeldBySlots(0, 77 * kSlotBytes), 0u);
}

}  // namespace
}  // namespace tessera::sched
