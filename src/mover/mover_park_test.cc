// The mover's program with programs that are parked: they hold nothing, and every word comes back.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <tuple>
#include <vector>

#include "mover/testing/test_mover.h"
#include "wire/swap_table.h"

namespace tessera::mover {
namespace {

using wire::kChunkBytes;
using wire::LineType;
using wire::MoverMessage;
using wire::MoverType;

void ExpectParked(const MoverMessage& end) {
  EXPECT_EQ(end.error, 0);
  EXPECT_EQ(end.bytes, 0u);
}

TEST(MoverPark, ParksAndBringsBack) {
  TestProgram program(4);
  TestMover mover({.wanted = 8, .most = 8, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  for (int round = 0; round < 2; ++round) {
    ExpectParked(mover.Park(1));
    EXPECT_EQ(program.InFile(), 4u);
    EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 4 * kChunkBytes; }));
    EXPECT_EQ(mover.Settle(1), 0);
    EXPECT_EQ(program.InFile(), 0u);
    EXPECT_TRUE(program.IsIntact());
  }
  ExpectParked(mover.Park(1));
  mover.BringBack(program);
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 0; }));
}

TEST(MoverPark, ParksWhatDoesNotFitIntoThePool) {
  TestFile file(16);
  TestProgram program(8);
  TestMover mover({.file = &file, .most = 4, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 8).error, 0);
  const MoverMessage end = mover.Park(1);
  ExpectParked(end);
  EXPECT_GE(end.other, 4 * kChunkBytes);
  EXPECT_EQ(program.InFile(), 8u);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 8).error, 0);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_TRUE(program.IsIntact());
}

// ---- two movers ----

// A mover takes what a program has parked with another one. The test does what the daemon does.
class MoverLends : public testing::Test {
 protected:
  std::vector<wire::SwapEntry> LentEntries() const {
    std::vector<wire::SwapEntry> lent(64);
    EXPECT_EQ(pread(slots_.table.Get(), lent.data(), lent.size() * sizeof lent[0], 0),
              static_cast<ssize_t>(lent.size() * sizeof lent[0]));
    std::erase_if(lent, [](const auto& entry) { return entry.key == 0 || !entry.Has(wire::SwapEntry::kShared); });
    return lent;
  }
  // Memory of a GPU is marked as the other pool's.
  void HandOver(TestMover& from, TestMover& to) {
    constexpr std::uint32_t kOnTheOther = wire::SwapEntry::kTransit | 1U << wire::SwapEntry::kGpuShift;
    from.Send({.type = MoverType::kLend, .bytes = static_cast<std::uint64_t>(program_.pid)});
    const MoverMessage said = from.Await(0, MoverType::kLent);
    EXPECT_EQ(said.error, 0);
    EXPECT_EQ(LentEntries().size(), said.other);
    for (const wire::SwapEntry& entry : LentEntries()) {
      to.Send({.type = MoverType::kSlotFor,
               .program = static_cast<std::uint64_t>(entry.owner),
               .bytes = entry.memory,
               .other = entry.key,
               .domain = entry.domain,
               .marks = entry.Has(wire::SwapEntry::kTransit) ? kOnTheOther : 0},
              slots_.kept.at(entry.memory).Get());
      EXPECT_EQ(to.Await(0, MoverType::kSlotTaken).error, 0);
      others_.kept.emplace(entry.memory, UniqueFd(dup(slots_.kept.at(entry.memory).Get())));
    }
  }
  void LetGo(TestMover& from) {
    from.Send({.type = MoverType::kGone, .program = 1});
    for (const wire::SwapEntry& entry : LentEntries()) from.Send({.type = MoverType::kLetGo, .bytes = entry.memory});
  }
  void Claim(TestMover& to) {
    to.Program(1, program_);
    to.Adopt(program_);
  }
  void Take(TestMover& to) {
    Claim(to);
    to.BringBack(program_);
    EXPECT_TRUE(to.Until([&] { return to.pool().other == 0 && others_.kept.empty(); })) << "they are used once";
  }

  TestSlots slots_, others_;
  TestProgram program_{4};
};

TEST_F(MoverLends, WhatIsParkedToAnotherPool) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
  EXPECT_EQ(from.Move(1, MoverType::kEvict, 4).error, 0);
  ExpectParked(from.Park(1));
  HandOver(from, to);
  EXPECT_EQ(others_.kept.size(), 4u);
  EXPECT_TRUE(to.Until([&] { return to.pool().other == 4 * kChunkBytes; }));
  LetGo(from);
  EXPECT_TRUE(from.Until([&] { return slots_.kept.empty() && from.pool().bytes == 0; }));
  Take(to);
}

// The program lets go of its GPU memory, which stays where it is.
class MoverLeavesInPlace : public MoverLends {
 protected:
  void SendAway(TestMover& from) {
    from.Send({.type = MoverType::kEvict, .program = 1, .bytes = program_.OnGpu(), .other = wire::kEvictInPlace});
    EXPECT_EQ(from.Await(1, MoverType::kEvicted).error, 0);
    ExpectParked(from.Park(1));
    EXPECT_EQ(program_.OnGpu(), 0u);
  }
};

TEST_F(MoverLeavesInPlace, AndItCountsInNoPool) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
  SendAway(from);
  EXPECT_EQ(slots_.kept.size(), 4u);
  EXPECT_TRUE(program_.HostMemories().empty());
  HandOver(from, to);
  LetGo(from);
  EXPECT_TRUE(from.Until([&] { return slots_.kept.empty(); }));
  EXPECT_TRUE(from.pool().bytes == 0 && to.pool().bytes == 0);
  to.Program(1, program_);
  to.Adopt(program_);
  to.BringBack(program_);
  EXPECT_TRUE(to.Until([&] { return others_.kept.empty(); })) << "it is used once";
}

// Its program is suspended again before it has come in.
class MoverLeavesOnTheOtherGpu : public MoverLeavesInPlace {
 protected:
  void GoOver() {
    SendAway(from_);
    HandOver(from_, to_);
    LetGo(from_);
    Claim(to_);
  }
  void ExpectBack() {
    to_.BringBack(program_);
    EXPECT_TRUE(to_.Until([&] { return to_.pool().other == 0; }));
  }

  TestMover from_{{.slots = &slots_, .most = 8, .program = &program_}}, to_{{.slots = &others_, .most = 8}};
};

TEST_F(MoverLeavesOnTheOtherGpu, AndItGoesOnFromThereToHostMemory) {
  GoOver();
  to_.Send({.type = MoverType::kRelocate, .program = 1});
  EXPECT_TRUE(to_.Until([&] { return to_.pool().other == 4 * kChunkBytes && others_.kept.size() == 4; }));
  ExpectBack();
}

TEST_F(MoverLeavesOnTheOtherGpu, AndItGoesOnFromThereToAFile) {
  GoOver();
  const UniqueFd file(memfd_create("suspended", MFD_CLOEXEC));
  to_.Send({.type = MoverType::kSave, .program = 1}, file.Get());
  const MoverMessage saved = to_.Await(1, MoverType::kSaved);
  EXPECT_TRUE(saved.error == 0 && saved.bytes > 4 * kChunkBytes);
  EXPECT_TRUE(to_.Until([&] { return to_.pool().other == 0; }));
  to_.Send({.type = MoverType::kUnsave, .program = 1});
  EXPECT_EQ(to_.Await(1, MoverType::kUnsaved).error, 0);
  ExpectBack();
}

TEST_F(MoverLeavesInPlace, AndItComesBackWhereItWas) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_});
  for (int round = 0; round < 2; ++round) {
    SendAway(from);
    EXPECT_EQ(from.Settle(1), EOPNOTSUPP) << "the program cannot hold it";
    from.BringBack(program_);
    EXPECT_TRUE(from.Until([&] { return slots_.kept.empty(); }));
  }
  EXPECT_EQ(from.Move(1, MoverType::kEvict, 2).error, 0);
  EXPECT_EQ(from.Settle(1), 0) << "host memory it can hold as before";
  EXPECT_TRUE(program_.IsIntact());
}

TEST_F(MoverLeavesInPlace, WhatIsWholeAndTheRestThroughHostMemory) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
  program_.Use(0x0f);
  EXPECT_EQ(from.Move(1, MoverType::kEvict, 1).error, 0);
  from.Send({.type = MoverType::kLoad, .program = 1, .bytes = 4 * wire::kUnitBytes});
  EXPECT_EQ(from.Await(1, MoverType::kLoaded).error, 0);
  EXPECT_EQ(program_.OnGpu(), 3 * kChunkBytes + 4 * wire::kUnitBytes);
  EXPECT_TRUE(from.Until([&] { return from.pool().other == 0; }));
  SendAway(from);
  EXPECT_TRUE(from.Until([&] { return from.pool().other == kChunkBytes; }));
  HandOver(from, to);
  LetGo(from);
  to.Program(1, program_);
  to.Adopt(program_);
  to.Send({.type = MoverType::kLoad, .program = 1, .bytes = 16 * wire::kUnitBytes});
  EXPECT_EQ(to.Await(1, MoverType::kLoaded).error, 0);
  EXPECT_TRUE(program_.Out() == 0 && program_.IsIntact());
}

TEST_F(MoverLeavesInPlace, WhatHasAPlaceInTheTable) {
  TestSlots few(3);
  TestMover from({.slots = &few, .most = 3, .program = &program_});
  from.Send({.type = MoverType::kEvict, .program = 1, .bytes = 4 * kChunkBytes, .other = wire::kEvictInPlace});
  const MoverMessage end = from.Await(1, MoverType::kEvicted);
  EXPECT_TRUE(end.error == ENOMEM && end.bytes == kChunkBytes);
  from.BringBack(program_);
}

TEST_F(MoverLeavesInPlace, NothingIsLostThoughBothAreKilled) {
  {
    TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
    SendAway(from);
    HandOver(from, to);
    kill(from.pid(), SIGKILL);
    kill(to.pid(), SIGKILL);
  }
  TestMover from({.slots = &slots_, .most = 8}), to({.slots = &others_, .most = 8});
  HandOver(from, to);
  LetGo(from);
  EXPECT_TRUE(from.Until([&] { return slots_.kept.empty(); }));
  Take(to);
}

TEST_F(MoverLeavesInPlace, WhatIsNoMemoryOfAGpuIsSaidByWhoTakesIt) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
  const UniqueFd file(memfd_create("no memory", MFD_CLOEXEC));
  to.Send({.type = MoverType::kSlotFor,
           .program = static_cast<std::uint64_t>(program_.pid),
           .bytes = 7,
           .other = 8,
           .domain = 1,
           .marks = wire::SwapEntry::kTransit},
          file.Get());
  EXPECT_EQ(to.Await(0, MoverType::kSlotTaken).error, EINVAL);
}

TEST_F(MoverLeavesInPlace, WhatItHasShownBefore) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
  const auto pid = static_cast<std::uint64_t>(program_.pid);
  from.Send({.type = MoverType::kShow, .program = pid, .bytes = 3 * kChunkBytes});
  EXPECT_EQ(from.Await(pid, MoverType::kShownAll).error, 0);
  EXPECT_TRUE(from.Until([&] { return slots_.kept.size() == 3; }));
  EXPECT_TRUE(program_.Out() == 0 && program_.IsIntact());
  program_.Drop(1001);  // meanwhile
  SendAway(from);
  EXPECT_EQ(slots_.kept.size(), 4u) << "one that was shown and freed, and one that was not shown";
  from.Send({.type = MoverType::kShow, .program = pid});
  EXPECT_TRUE(from.Until([&] { return slots_.kept.size() == 3; }));
  HandOver(from, to);
  LetGo(from);
  Take(to);
}

TEST_F(MoverLeavesInPlace, NotWhatItHasShownIfItDoesNotGo) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_});
  const auto pid = static_cast<std::uint64_t>(program_.pid);
  for (int round = 0; round < 2; ++round) {
    from.Send({.type = MoverType::kShow, .program = pid, .bytes = 100 * kChunkBytes});
    EXPECT_EQ(from.Await(pid, MoverType::kShownAll).error, 0);
    EXPECT_TRUE(from.Until([&] { return slots_.kept.size() == 4; }));
    from.Send({.type = MoverType::kShow, .program = pid});
    EXPECT_TRUE(from.Until([&] { return slots_.kept.empty(); }));
  }
  SendAway(from);
  from.BringBack(program_);
}

TEST_F(MoverLeavesInPlace, NotWhatItHasShownToAMoverThatIsKilled) {
  const auto pid = static_cast<std::uint64_t>(program_.pid);
  {
    TestMover from({.fault = "mover.shown.told", .slots = &slots_, .most = 8, .program = &program_});
    from.Send({.type = MoverType::kShow, .program = pid, .bytes = 100 * kChunkBytes});
    EXPECT_FALSE(from.Until([&] { return from.Has(pid, MoverType::kShownAll); }));
  }
  TestMover from({.slots = &slots_, .most = 8, .program = &program_});
  from.Adopt(program_);
  EXPECT_TRUE(from.Until([&] { return slots_.kept.empty(); }));
  SendAway(from);
  from.BringBack(program_);
}

TEST_F(MoverLeavesInPlace, SlotsThatMayComeAreMappedBefore) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
  SendAway(from);
  const auto pid = static_cast<std::uint64_t>(program_.pid);
  for (const auto& [number, memory] : slots_.kept) {
    to.Send({.type = MoverType::kReach, .program = pid, .bytes = number, .marks = wire::SwapEntry::kTransit},
            memory.Get());
    EXPECT_EQ(to.Await(0, MoverType::kReached).bytes, number);
  }
  HandOver(from, to);
  to.Send({.type = MoverType::kReachOver, .program = pid});
  LetGo(from);
  Take(to);
}

TEST_F(MoverLends, WhatIsHeldToNobody) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_});
  EXPECT_EQ(from.Move(1, MoverType::kEvict, 4).error, 0);
  from.Send({.type = MoverType::kLend, .bytes = static_cast<std::uint64_t>(program_.pid)});
  EXPECT_EQ(from.Await(0, MoverType::kLent).error, EBUSY);
  EXPECT_TRUE(LentEntries().empty());
}

// Before the first one has let go of it, either has it; after that the second one.
TEST_F(MoverLends, NothingIsLostThoughBothAreKilled) {
  {
    TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
    EXPECT_EQ(from.Move(1, MoverType::kEvict, 4).error, 0);
    ExpectParked(from.Park(1));
    HandOver(from, to);
    kill(from.pid(), SIGKILL);
    kill(to.pid(), SIGKILL);
  }
  TestMover from({.slots = &slots_, .most = 8}), to({.slots = &others_, .most = 8});
  HandOver(from, to);  // once more: it is there
  EXPECT_EQ(others_.kept.size(), 4u);
  EXPECT_TRUE(to.Until([&] { return to.pool().other == 4 * kChunkBytes; }));
  LetGo(from);  // though it does not know the program
  EXPECT_TRUE(from.Until([&] { return slots_.kept.empty(); }));
  Take(to);
}

TEST_F(MoverLends, AndTheFirstOneCanHaveItBack) {
  TestMover from({.slots = &slots_, .most = 8, .program = &program_}), to({.slots = &others_, .most = 8});
  EXPECT_EQ(from.Move(1, MoverType::kEvict, 4).error, 0);
  ExpectParked(from.Park(1));
  HandOver(from, to);
  LetGo(to);
  EXPECT_TRUE(to.Until([&] { return others_.kept.empty(); }));
  EXPECT_EQ(from.Move(1, MoverType::kLoad, 4).error, 0);
  EXPECT_TRUE(program_.IsIntact());
  EXPECT_TRUE(from.Until([&] { return slots_.kept.empty(); })) << "they are used once";
}

// ---- movers that end ----

class MoverParkKilled : public testing::TestWithParam<const char*> {};

TEST_P(MoverParkKilled, LosesNothing) {
  TestFile file(16);
  TestSlots slots;
  TestProgram program(6);
  const std::string fault = GetParam();
  {
    TestMover mover({.fault = fault, .slots = &slots, .file = &file, .most = 5, .program = &program});
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
    mover.Send({.type = MoverType::kPark, .program = 1});
    const bool parked = mover.Until([&] { return mover.Has(1, MoverType::kParked); });
    if (parked && fault.empty()) {
      kill(mover.pid(), SIGKILL);
    } else if (parked) {
      const bool returns = fault.starts_with("mover.return");
      mover.Send({.type = returns ? MoverType::kSettle : MoverType::kLoad, .program = 1, .bytes = 6 * kChunkBytes});
    }
    EXPECT_FALSE(mover.Until([&] { return mover.Has(1, MoverType::kLoaded); }));
    mover.ExpectKilled(SIGKILL);
    program.AnswerAll();
  }
  EXPECT_TRUE(program.IsIntact());
  TestMover mover({.slots = &slots, .file = &file, .most = 8, .program = &program});
  mover.Adopt(program);
  ExpectParked(mover.Park(1));
  mover.BringBack(program);
}

TEST(MoverPark, GoesAwayAtOnceAndComesBack) {
  TestProgram program(4);
  TestMover mover({.wanted = 8, .most = 8, .program = &program});
  mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 4 * kChunkBytes, .other = wire::kEvictInPlace});
  mover.Send({.type = MoverType::kRelocate, .program = 1});
  EXPECT_EQ(mover.Await(1, MoverType::kEvicted).error, 0);
  EXPECT_EQ(program.InFile(), 4u);
  EXPECT_TRUE(program.HostMemories().empty());
  ExpectParked(mover.Park(1));
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 4 * kChunkBytes; }));
  mover.BringBack(program);
}

TEST(MoverPark, AProgramThatImportsNothingMovesFromTheFileAsWell) {
  TestFile file(16);
  TestProgram program(6);
  TestMover mover({.file = &file, .most = 4, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  EXPECT_GE(program.InFile(), 3u);
  program.imports = false;
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 6).error, 0);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 3).error, 0);
  EXPECT_EQ(mover.Settle(1), EOPNOTSUPP);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 3).error, 0);
  EXPECT_EQ(mover.Settle(1), 0);
  EXPECT_TRUE(program.IsIntact());
}

// The first one: whether what was left in place goes on to host memory.
class MoverAwayKilled : public testing::TestWithParam<std::tuple<bool, const char*>> {};

TEST_P(MoverAwayKilled, LosesNothing) {
  const auto [relocates, fault] = GetParam();
  TestSlots slots;
  TestProgram program(4);
  {
    TestMover mover({.fault = fault, .slots = &slots, .most = 8, .program = &program});
    mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 4 * kChunkBytes, .other = wire::kEvictInPlace});
    if (relocates) mover.Send({.type = MoverType::kRelocate, .program = 1});
    if (mover.Until([&] { return mover.Has(1, MoverType::kEvicted) && (!relocates || mover.pool().other > 0); }))
      mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 4 * kChunkBytes});
    EXPECT_FALSE(mover.Until([&] { return mover.Has(1, MoverType::kLoaded); }));
    mover.ExpectKilled(SIGKILL);
    program.AnswerAll();
  }
  EXPECT_TRUE(program.IsIntact());
  TestMover mover({.slots = &slots, .most = 8, .program = &program});
  mover.Adopt(program);
  mover.BringBack(program);
}

INSTANTIATE_TEST_SUITE_P(Steps, MoverAwayKilled,
                         testing::Combine(testing::Bool(),
                                          testing::Values("mover.left.told", "mover.away.sent", "mover.freed.received",
                                                          "mover.loaded.sent", "mover.taken.received")));
INSTANTIATE_TEST_SUITE_P(Relocations, MoverAwayKilled,
                         testing::Combine(testing::Values(true), testing::Values("mover.relocated:2")));

// The first one: while it is parked, and nothing is under way.
INSTANTIATE_TEST_SUITE_P(Steps, MoverParkKilled,
                         testing::Values("", "mover.park.sent", "mover.park.answered", "mover.return.sent",
                                         "mover.return.answered", "mover.taken.received:2"));

}  // namespace
}  // namespace tessera::mover
