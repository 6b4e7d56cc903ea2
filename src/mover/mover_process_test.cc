// The mover's program, with programs of real (soft) GPU memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/seqpacket.h"
#include "mover/testing/test_mover.h"

namespace tessera::mover {
namespace {

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;
using wire::MoverMessage;
using wire::MoverType;

TEST(MoverProcess, MovesOutAndInAnotherOrder) {
  TestProgram program(10);
  TestMover mover({.wanted = 12, .most = 12, .program = &program});
  EXPECT_TRUE(mover.Until([&] { return mover.Has(0, MoverType::kReady); }));

  MoverMessage end = mover.Move(1, MoverType::kEvict, 10);
  EXPECT_EQ(end.error, 0);
  EXPECT_EQ(end.bytes, 0u);
  EXPECT_EQ(program.Out(), 10u);
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).bytes, 10 * kChunkBytes);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 10 * kChunkBytes; }));

  end = mover.Move(1, MoverType::kLoad, 7);
  EXPECT_EQ(end.error, 0);
  EXPECT_EQ(program.Out(), 3u);
  EXPECT_TRUE(program.IsIntact());
  end = mover.Move(1, MoverType::kLoad, 4);
  EXPECT_EQ(end.error, ENODATA);
  EXPECT_EQ(end.bytes, kChunkBytes);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).other, 10 * kChunkBytes);
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 0 && mover.pool().bytes == 12 * kChunkBytes; }));
}

TEST(MoverProcess, WishesAddUpAndAreRounded) {
  TestProgram program(6);
  TestMover mover({.wanted = 8, .most = 8, .program = &program});
  mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 1});
  mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 2 * kChunkBytes});
  EXPECT_TRUE(mover.Until([&] { return mover.Last(1, MoverType::kMoved).bytes == 3 * kChunkBytes; }));
  mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 2 * kChunkBytes - 1});
  const MoverMessage end = mover.Await(1, MoverType::kLoaded);
  EXPECT_EQ(end.error, ENODATA) << "no second chunk is so small";
  EXPECT_EQ(end.bytes, kChunkBytes - wire::kUnitBytes);
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).other, kChunkBytes);
  EXPECT_EQ(program.Out(), 2u);
  EXPECT_EQ(mover.Settle(1), 0);
}

TEST(MoverProcess, FullPoolKeepsTheRest) {
  TestProgram program(12);
  TestMover mover;
  mover.Pool(0, 9);  // all of it is made on demand
  mover.Program(1, program);
  MoverMessage end = mover.Move(1, MoverType::kEvict, 12);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, 3 * kChunkBytes);
  EXPECT_EQ(program.Out(), 9u);
  end = mover.Move(1, MoverType::kLoad, 9);
  EXPECT_EQ(end.error, 0);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(mover.Until([&] { return mover.pool().bytes == 0; })) << "what is not wanted is freed";
}

TEST(MoverProcess, HostMemoryOfOthersIsLeftAlone) {
  TestProgram program(2);
  TestMover mover({.floor = "1000T", .wanted = 4, .most = 8, .program = &program});
  EXPECT_TRUE(mover.Until([&] { return mover.pool().error == ENOMEM; }));
  const MoverMessage end = mover.Move(1, MoverType::kEvict, 2);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, 2 * kChunkBytes);
}

TEST(MoverProcess, NoDomainGetsHostMemoryOfAnother) {
  const char* driver = std::getenv("TESSERA_TEST_LIBCUDA");
  if (driver != nullptr && std::string(driver).find("/soft/") == std::string::npos)
    GTEST_SKIP() << "all of a real driver's memory is one inode";
  TestProgram first(2, 1), second(2, 2), third(2, 3);
  TestMover mover({.wanted = 2, .most = 2, .program = &first, .domain = 10});
  mover.Program(2, second, 20);
  mover.Program(3, third, 10);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 2).error, 0);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 2).error, 0);
  EXPECT_EQ(mover.Move(3, MoverType::kEvict, 2).error, 0);
  EXPECT_EQ(mover.Move(3, MoverType::kLoad, 2).error, 0);
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 2).error, 0);
  EXPECT_TRUE(first.IsIntact() && second.IsIntact() && third.IsIntact());
  auto one = first.HostMemories(), same = third.HostMemories(), other = second.HostMemories();
  std::ranges::sort(one);
  std::ranges::sort(same);
  EXPECT_EQ(one, same);
  for (const ino_t memory : other) EXPECT_EQ(std::ranges::find(one, memory), one.end());
}

TEST(MoverProcess, ProgramsMoveAtOnce) {
  TestProgram first(4, 1), second(4, 2);
  TestMover mover({.wanted = 8, .most = 8, .program = &first});
  mover.Program(2, second);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  for (int round = 0; round < 2; ++round) {
    mover.Send({.type = round % 2 == 0 ? MoverType::kLoad : MoverType::kEvict, .program = 1, .bytes = 4 * kChunkBytes});
    mover.Move(2, round % 2 == 0 ? MoverType::kEvict : MoverType::kLoad, 4);
    mover.Await(1, round % 2 == 0 ? MoverType::kLoaded : MoverType::kEvicted);
    EXPECT_EQ(first.Out(), round % 2 == 0 ? 0u : 4u);
    EXPECT_EQ(second.Out(), round % 2 == 0 ? 4u : 0u);
    EXPECT_TRUE(first.IsIntact() && second.IsIntact());
  }
}

TEST(MoverProcess, ProgramThatFailsKeepsItsMemory) {
  TestProgram program(4);
  TestMover mover({.wanted = 8, .most = 8, .program = &program});
  program.freed_fails = true;
  MoverMessage end = mover.Move(1, MoverType::kEvict, 4);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, 4 * kChunkBytes);
  program.freed_fails = false;
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  program.taken_fails = true;
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 4).error, ENOMEM);
  EXPECT_EQ(program.Out(), 4u);
  program.taken_fails = false;
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 4).error, 0);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverProcess, DroppedChunksAreFree) {
  TestProgram program(4);
  TestMover mover({.wanted = 4, .most = 4, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  program.Drop(1001);
  program.Drop(1003);
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 2 * kChunkBytes; }));
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 2).error, 0);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverProcess, EndedProgramLeavesNothing) {
  TestProgram other(4, 2);
  TestMover mover;
  mover.Pool(8, 8);
  mover.Program(2, other);
  EXPECT_TRUE(mover.Until([&] { return mover.pool().bytes == 8 * kChunkBytes; }));
  const std::size_t descriptors = mover.Descriptors();
  for (const LineType step : {LineType::kEvict, LineType::kStored, LineType::kLoad, LineType::kLoaded}) {
    TestProgram program(4);
    program.pid = EndedProcess();
    mover.Program(1, program);
    if (step == LineType::kLoad || step == LineType::kLoaded) mover.Move(1, MoverType::kEvict, 4);
    program.instead[step] = [&](const LineMessage&, std::span<UniqueFd>) { program.HangUp(); };
    const bool out = step == LineType::kEvict || step == LineType::kStored;
    const MoverMessage end = mover.Move(1, out ? MoverType::kEvict : MoverType::kLoad, 4);
    EXPECT_EQ(end.error, EPIPE);
    EXPECT_EQ(end.bytes, 4 * kChunkBytes);
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, 1).error, EPIPE);
    mover.Forget(1);
    EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 0 && mover.pool().bytes == 8 * kChunkBytes; }));
    // The copies of other chunks end a little later, and the mover has their memory until then.
    EXPECT_TRUE(mover.Until([&] { return mover.Descriptors() == descriptors; })) << mover.Descriptors();
  }
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 4).error, 0);
  EXPECT_TRUE(other.IsIntact());
}

TEST(MoverProcess, ANewLineFindsWhatIsOut) {
  TestProgram program(4);
  TestMover mover({.most = 8, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  program.HangUp();
  mover.Forget(1);
  mover.Program(2, program);
  program.Adopt();
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 4 * kChunkBytes; }));
  EXPECT_TRUE(program.IsIntact());
  EXPECT_EQ(mover.Move(2, MoverType::kLoad, 4).error, 0);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverProcess, SilentProgramHoldsNobodyUp) {
  TestProgram silent(8, 1), other(8, 2);
  TestMover mover({.wanted = 8, .most = 8, .program = &silent});
  mover.Program(2, other);
  silent.instead[LineType::kEvict] = [](const LineMessage&, std::span<UniqueFd>) {};
  mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 8 * kChunkBytes});
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 8).error, 0);
  EXPECT_TRUE(other.IsIntact());
}

// ---- movers that end ----

class MoverKilled : public testing::TestWithParam<const char*> {};

// Memory that was out stays out with the new mover; nothing is lost wherever the old one ended.
TEST_P(MoverKilled, LosesNothing) {
  TestProgram program(10);
  TestSlots slots;
  {
    TestMover mover({.fault = GetParam(), .slots = &slots, .wanted = 10, .most = 10, .program = &program});
    mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 10 * kChunkBytes});
    if (mover.Until([&] { return mover.Has(1, MoverType::kEvicted); }))
      mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 10 * kChunkBytes});
    if (mover.Until([&] { return mover.Has(1, MoverType::kLoaded); })) mover.Pool(0, 10);
    EXPECT_FALSE(mover.Until([] { return false; }));
    mover.ExpectKilled(SIGKILL);
    program.AnswerAll();
  }
  EXPECT_TRUE(program.IsIntact());
  const std::size_t out = program.Out();
  TestMover mover({.slots = &slots, .wanted = 10, .most = 10, .program = &program});
  program.Adopt();
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == out * kChunkBytes; }));
  EXPECT_EQ(program.refused, 0);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 10 - out).error, 0);
  EXPECT_EQ(program.Out(), 10u);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 10).error, 0);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(mover.Until([&] { return mover.pool().bytes == 10 * kChunkBytes && mover.pool().other == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Steps, MoverKilled,
                         testing::Values("mover.offer.imported", "mover.offer.imported:2", "mover.copy.started",
                                         "mover.copy.started:3", "mover.copy.done:2", "mover.stored.sent",
                                         "mover.stored.sent:2", "mover.freed.received", "mover.want.imported",
                                         "mover.copy.done:4", "mover.loaded.sent", "mover.loaded.sent:2",
                                         "mover.taken.received", "mover.pool.grown:9", "mover.slot.told",
                                         "mover.slot.told:9", "mover.slot.gone:3"));

// The one that goes on with its predecessor's slots dies as well.
class SecondMoverKilled : public testing::TestWithParam<const char*> {};

TEST_P(SecondMoverKilled, LosesNothing) {
  TestProgram program(10);
  TestSlots slots;
  {
    TestMover mover({.slots = &slots, .wanted = 12, .most = 12, .program = &program});
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, 10).error, 0);
    EXPECT_TRUE(mover.Until([&] { return slots.kept.size() == 12; }));
  }
  {
    TestMover mover({.fault = GetParam(), .slots = &slots, .wanted = 12, .most = 12, .program = &program});
    program.Adopt();
    EXPECT_FALSE(mover.Until([] { return false; }));
    mover.ExpectKilled(SIGKILL);
    program.AnswerAll();
  }
  const int adopted = program.adopted;
  TestMover mover({.slots = &slots, .wanted = 12, .most = 12, .program = &program});
  program.Adopt();
  EXPECT_TRUE(mover.Until([&] { return program.adopted == adopted + 10; }));
  EXPECT_EQ(program.refused, 0);
  EXPECT_EQ(slots.kept.size(), 12u) << "none was made anew";
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 10).error, 0);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(mover.Until([&] { return mover.pool().bytes == 12 * kChunkBytes && mover.pool().other == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Steps, SecondMoverKilled,
                         testing::Values("mover.slot.restored", "mover.slot.restored:7", "mover.adopt.claimed",
                                         "mover.adopt.claimed:2", "mover.adopted.sent", "mover.adopted.sent:2"));

// ---- slots of an earlier mover ----

class Earlier : public testing::Test {
 protected:
  // A mover that ends when all chunks of the program are out.
  void MoveOutAndEnd(TestProgram& program, std::uint64_t chunks, std::uint64_t domain = 0) {
    TestMover mover({.slots = &slots_, .wanted = chunks, .most = chunks, .program = &program, .domain = domain});
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, chunks).error, 0);
  }
  TestSlots slots_;
};

TEST_F(Earlier, AnotherDomainAdoptsNothingThoughItKnowsTheKeys) {
  TestProgram program(4);
  MoveOutAndEnd(program, 4, 10);
  TestMover mover({.slots = &slots_, .wanted = 4, .most = 8, .program = &program, .domain = 20});
  program.Adopt();
  EXPECT_TRUE(mover.Until([&] { return program.refused == 4; }));
  EXPECT_EQ(program.adopted, 0);
  EXPECT_TRUE(program.IsIntact());
}

TEST_F(Earlier, NobodyAdoptsWithoutTheKey) {
  TestProgram program(4, 1), thief(0, 2);
  MoveOutAndEnd(program, 4);
  TestMover mover({.slots = &slots_});
  mover.Pool(4, 4);
  mover.Program(2, thief);
  LineMessage adopt = {.type = LineType::kAdopt, .count = wire::kMostChunks};
  for (std::uint32_t i = 0; i < adopt.count; ++i) {
    adopt.chunk[i] = 5000 + i;
    adopt.key[i] = i;
  }
  thief.Send(adopt);
  EXPECT_TRUE(mover.Until([&] { return thief.refused == static_cast<int>(wire::kMostChunks); }));
  mover.Program(1, program);
  program.Adopt();
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 4).error, 0);
  EXPECT_EQ(program.refused, 0);
  EXPECT_TRUE(program.IsIntact());
}

TEST_F(Earlier, WhatNobodyKeptStaysWithItsProgramAndIsFreedByIt) {
  TestProgram program(4);
  MoveOutAndEnd(program, 4);
  slots_.kept.erase(slots_.kept.begin());  // EMFILE, say
  TestMover mover({.slots = &slots_, .wanted = 4, .most = 4, .program = &program});
  program.Adopt();
  EXPECT_TRUE(mover.Until([&] { return program.adopted == 3 && program.refused == 1; }));
  const MoverMessage end = mover.Move(1, MoverType::kLoad, 4);
  EXPECT_EQ(end.error, ENODATA);
  EXPECT_EQ(end.bytes, kChunkBytes);
  EXPECT_EQ(program.Out(), 1u);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 3).error, 0);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 3).error, 0);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(mover.Until([&] { return mover.pool().bytes == 4 * kChunkBytes && mover.pool().other == 0; }));
}

TEST_F(Earlier, WhatIsNoHostMemoryIsNoSlot) {
  TestProgram program(2);
  MoveOutAndEnd(program, 2);
  const auto chunk = TestDriver::Get().MakeChunk();
  slots_.kept.begin()->second = TestDriver::Get().Export(chunk);
  slots_.kept.emplace(12345, TestDriver::Get().Export(chunk));  // and no number that the table knows
  EXPECT_EQ(TestDriver::Get().cuda.MemRelease(chunk), cuda::CUDA_SUCCESS);
  TestMover mover({.slots = &slots_, .wanted = 2, .most = 2, .program = &program});
  program.Adopt();
  EXPECT_TRUE(mover.Until([&] { return program.adopted == 1 && program.refused == 1; }));
  EXPECT_TRUE(mover.Until([&] { return slots_.kept.size() == 2; })) << "one is made for the one that is none";
  EXPECT_FALSE(slots_.kept.contains(12345));
  EXPECT_TRUE(program.IsIntact());
}

TEST_F(Earlier, SlotsOfADomainAreNotGivenToAnother) {
  const char* driver = std::getenv("TESSERA_TEST_LIBCUDA");
  if (driver != nullptr && std::string(driver).find("/soft/") == std::string::npos)
    GTEST_SKIP() << "all of a real driver's memory is one inode";
  TestProgram first(2, 1), same(2, 2), other(2, 3);
  {
    TestMover mover({.slots = &slots_, .wanted = 2, .most = 2, .program = &first, .domain = 10});
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, 2).error, 0);
    EXPECT_EQ(mover.Move(1, MoverType::kLoad, 2).error, 0);
  }
  TestMover mover({.slots = &slots_});
  mover.Pool(2, 2);
  mover.Program(2, same, 10);
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 2).error, 0);
  EXPECT_EQ(mover.Move(2, MoverType::kLoad, 2).error, 0);
  mover.Program(3, other, 20);
  EXPECT_EQ(mover.Move(3, MoverType::kEvict, 2).error, 0);
  auto one = first.HostMemories(), again = same.HostMemories();
  std::ranges::sort(one);
  std::ranges::sort(again);
  EXPECT_EQ(one, again);
  for (const ino_t memory : other.HostMemories()) EXPECT_EQ(std::ranges::find(one, memory), one.end());
}

// ---- movers that lose their daemon ----

// The mover lets its copies end, and writes to no slot after its end: the next one has what programs have there.
TEST(MoverProcess, EndsWithTheDaemonWhileItMoves) {
  TestProgram program(8);
  TestSlots slots;
  {
    TestMover mover({.slots = &slots, .wanted = 8, .most = 8, .program = &program});
    mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 8 * kChunkBytes});
    EXPECT_TRUE(mover.Until([&] { return program.Out() > 0; }));
    mover.CloseSocket();
    mover.ExpectExit(0);
    program.AnswerAll();
  }
  EXPECT_TRUE(program.IsIntact());
  TestMover mover({.slots = &slots, .wanted = 8, .most = 8, .program = &program});
  program.Adopt();
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, program.Out()).error, 0);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_EQ(program.refused, 0);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverProcess, EndsWithTheDaemon) {
  TestMover mover;
  mover.Await(0, MoverType::kReady);
  mover.CloseSocket();
  mover.ExpectExit(0);
}

TEST(MoverProcess, EndsOnTermination) {
  TestMover mover;
  mover.Await(0, MoverType::kReady);
  kill(mover.pid(), SIGTERM);
  mover.ExpectKilled(SIGTERM);
}

TEST(MoverProcess, SaysWhyItCannotWork) {
  TestMover mover({.gpu = "GPU-00000000-0000-0000-0000-000000000000"});
  const MoverMessage failed = mover.Await(0, MoverType::kFailed);
  EXPECT_EQ(failed.error, ENODEV);
  EXPECT_NE(std::string(failed.text).find("GPU-00000000"), std::string::npos) << failed.text;
  mover.ExpectExit(1);
}

}  // namespace
}  // namespace tessera::mover
