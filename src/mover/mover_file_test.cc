// The mover's program with a swap file: what is cold goes there, and every word comes back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mover/testing/test_mover.h"

namespace tessera::mover {
namespace {

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;
using wire::MoverMessage;
using wire::MoverType;

class MoverFile : public testing::Test {
 protected:
  // Until nothing is on its way to or from the file, or left in it of a program that ended.
  bool InFile(TestMover& mover, std::uint64_t chunks) {
    return mover.Until([&] { return mover.file().other == chunks * kChunkBytes; });
  }

  TestFile file_{16};
};

TEST_F(MoverFile, WhatDoesNotFitIntoThePoolGoesThereAndComesBack) {
  TestProgram program(10);
  TestMover mover({.file = &file_, .most = 4, .program = &program});
  const MoverMessage end = mover.Move(1, MoverType::kEvict, 10);
  EXPECT_EQ(end.error, 0);
  EXPECT_EQ(program.Out(), 10u);
  EXPECT_GE(program.InFile(), 6u);
  EXPECT_TRUE(InFile(mover, program.InFile()));
  EXPECT_EQ(mover.file().bytes, 16 * kChunkBytes);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 10).error, 0);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(InFile(mover, 0));
}

TEST_F(MoverFile, AProgramIsSettledOnlyWhenNothingOfItIsThere) {
  TestProgram cold(3, 1), warm(4, 2);
  TestMover mover({.file = &file_, .most = 5, .program = &cold});
  mover.Program(2, warm);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 3).error, 0);
  EXPECT_EQ(cold.InFile(), 0u) << "four slots are for it";
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 4).error, 0);
  EXPECT_GE(cold.InFile(), 3u) << "it was stored first";
  EXPECT_EQ(mover.Settle(1), 0);
  EXPECT_EQ(cold.InFile(), 0u);
  EXPECT_EQ(cold.Out(), 3u);
  EXPECT_TRUE(cold.IsIntact());
  EXPECT_GE(warm.InFile(), 2u);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 3).error, 0);
  EXPECT_EQ(mover.Move(2, MoverType::kLoad, 4).error, 0);
  EXPECT_TRUE(cold.IsIntact() && warm.IsIntact());
  EXPECT_TRUE(InFile(mover, 0));
}

// It runs, and its kernels write to what it has in host memory.
TEST_F(MoverFile, WhatIsSettledStays) {
  TestProgram runs(3, 1), goes(4, 2);
  TestMover mover({.file = &file_, .most = 4, .program = &runs});
  mover.Program(2, goes);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 3).error, 0);
  EXPECT_EQ(mover.Settle(1), 0);
  const MoverMessage end = mover.Move(2, MoverType::kEvict, 4);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, 4 * kChunkBytes) << "three slots are taken, and the last one is for what comes back";
  EXPECT_EQ(runs.InFile(), 0u);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 0).error, 0);  // it stands still again
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 4).error, 0);
  EXPECT_EQ(runs.InFile(), 3u);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 3).error, 0);
  EXPECT_TRUE(runs.IsIntact());
}

TEST_F(MoverFile, WhatIsLargerThanThePoolIsNotSettled) {
  TestProgram program(6);
  TestMover mover({.file = &file_, .most = 3, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  EXPECT_EQ(mover.Settle(1), ENOMEM);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 4).error, 0);
  EXPECT_EQ(mover.Settle(1), 0);
  EXPECT_EQ(program.Out(), 2u);
  EXPECT_TRUE(program.IsIntact());
}

TEST_F(MoverFile, AFullFileKeepsTheRestOnTheGpu) {
  TestFile little(2);
  TestProgram program(8);
  TestMover mover({.file = &little, .most = 3, .program = &program});
  const MoverMessage end = mover.Move(1, MoverType::kEvict, 8);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, 4 * kChunkBytes);
  EXPECT_EQ(program.Out(), 4u);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 4).error, 0);
  EXPECT_TRUE(program.IsIntact());
}

// A write fails: here, because the file is open for reading only.
TEST_F(MoverFile, WhatCannotBeWrittenStaysInItsSlot) {
  TestProgram program(8);
  const UniqueFd read_only(open(("/proc/self/fd/" + std::to_string(file_.file.Get())).c_str(), O_RDONLY | O_CLOEXEC));
  TestFile broken(16);
  broken.file.Reset(fcntl(read_only.Get(), F_DUPFD_CLOEXEC, 0));
  TestMover mover({.file = &broken, .most = 4, .program = &program});
  const MoverMessage end = mover.Move(1, MoverType::kEvict, 8);
  EXPECT_EQ(end.error, ENOMEM);
  EXPECT_EQ(end.bytes, 5 * kChunkBytes);
  EXPECT_EQ(program.InFile(), 0u);
  EXPECT_TRUE(mover.Until([&] { return mover.file().error == EBADF; }));
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 3).error, 0);
  EXPECT_TRUE(program.IsIntact());
}

TEST_F(MoverFile, WhatCannotBeReadIsNeverMadeUp) {
  TestProgram program(6);
  TestMover mover({.file = &file_, .most = 3, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  const std::size_t filed = program.InFile();
  ASSERT_EQ(ftruncate(file_.file.Get(), 0), 0);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 6).error, EIO);
  EXPECT_EQ(program.InFile(), filed);
  EXPECT_EQ(mover.Settle(1), EIO);
  EXPECT_EQ(program.seen[LineType::kSettle], 0);
  EXPECT_TRUE(program.IsIntact()) << "what was not there";
}

TEST_F(MoverFile, DroppedChunksLeaveTheFile) {
  TestProgram program(6);
  TestMover mover({.file = &file_, .most = 3, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  const std::size_t filed = program.InFile();
  for (std::uint64_t chunk = 1000; chunk < 1006; ++chunk) program.Drop(chunk);
  EXPECT_GE(filed, 4u);
  EXPECT_TRUE(InFile(mover, 0));
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 0; }));
}

// While the program has the question before it, it frees what the question is about.
TEST_F(MoverFile, DroppedChunksOnTheirWayLeaveNothing) {
  TestProgram program(6);
  TestMover mover({.file = &file_, .most = 3, .program = &program});
  program.instead[LineType::kFiled] = [&](const LineMessage& filed, std::span<UniqueFd>) {
    program.instead.clear();
    program.Drop(filed.chunk[0]);
    program.Send({.type = LineType::kReleased});
  };
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  EXPECT_EQ(program.Out(), 5u);
  program.instead[LineType::kRead] = [&](const LineMessage& read, std::span<UniqueFd>) {
    program.instead.clear();
    program.Drop(read.chunk[0]);
    program.Send({.type = LineType::kHeld});
  };
  mover.Move(1, MoverType::kLoad, 5);
  mover.Move(1, MoverType::kLoad, 4);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(InFile(mover, 0));
}

TEST_F(MoverFile, ProgramsOfOtherDomainsShareIt) {
  TestProgram first(4, 1), second(4, 2);
  TestMover mover({.file = &file_, .most = 3, .program = &first, .domain = 10});
  mover.Program(2, second, 20);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
    EXPECT_EQ(mover.Move(2, MoverType::kEvict, 4).error, 0);
    EXPECT_EQ(mover.Move(1, MoverType::kLoad, 4).error, 0);
    EXPECT_EQ(mover.Move(2, MoverType::kLoad, 4).error, 0);
    EXPECT_TRUE(first.IsIntact() && second.IsIntact());
  }
  EXPECT_TRUE(InFile(mover, 0));
}

// Another line to the same mover, as after a wrong message.
TEST_F(MoverFile, ANewLineFindsWhatIsThere) {
  TestProgram program(6);
  TestMover mover({.file = &file_, .most = 3, .program = &program});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  EXPECT_GT(program.InFile(), 0u);
  program.HangUp();
  mover.Forget(1);
  mover.Program(2, program);
  program.Adopt();
  mover.Settle(2);
  EXPECT_EQ(mover.Move(2, MoverType::kLoad, 6).error, 0);
  EXPECT_TRUE(program.IsIntact());
  EXPECT_TRUE(InFile(mover, 0));
}

TEST_F(MoverFile, NobodyReadsWithoutTheKey) {
  TestProgram owner(6, 1), thief(1, 2);
  TestMover mover({.file = &file_, .most = 3, .program = &owner});
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  mover.Program(2, thief);
  for (std::uint64_t key = 0; key < 20; ++key) {
    LineMessage adopt = {.type = LineType::kAdoptFiled, .count = 1};
    adopt.chunk[0] = 5000 + key;
    adopt.key[0] = key;
    thief.Send(adopt);
  }
  mover.Settle(2);  // the answer comes behind all that it said
  EXPECT_EQ(mover.Settle(2), ESTALE);
  EXPECT_EQ(mover.Move(2, MoverType::kLoad, 1).error, ESTALE);
  EXPECT_EQ(mover.Move(1, MoverType::kLoad, 6).error, 0);
  EXPECT_TRUE(owner.IsIntact());
}

TEST_F(MoverFile, AMoverWithoutTheFileSaysThatItIsLost) {
  TestProgram program(6);
  {
    TestMover mover({.file = &file_, .most = 3, .program = &program});
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, 6).error, 0);
  }
  TestFile other(16);
  TestMover mover({.file = &other, .most = 8, .program = &program});
  program.Adopt();
  EXPECT_NE(mover.Settle(1), 0);
  EXPECT_EQ(mover.Settle(1), ESTALE);
}

// ---- movers that end ----

class MoverFileKilled : public testing::TestWithParam<const char*> {};

TEST_P(MoverFileKilled, LosesNothing) {
  TestFile file(16);
  TestSlots slots;
  TestProgram program(6);
  {
    TestMover mover({.fault = GetParam(), .slots = &slots, .file = &file, .most = 3, .program = &program});
    mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 6 * kChunkBytes});
    if (mover.Until([&] { return mover.Has(1, MoverType::kEvicted); }))
      mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 6 * kChunkBytes});
    EXPECT_FALSE(mover.Until([&] { return mover.Has(1, MoverType::kLoaded); }));
    mover.ExpectKilled(SIGKILL);
    program.AnswerAll();
  }
  EXPECT_TRUE(program.IsIntact());
  TestMover mover({.slots = &slots, .file = &file, .most = 8, .program = &program});
  mover.Adopt(program);
  mover.BringBack(program);
}

INSTANTIATE_TEST_SUITE_P(Steps, MoverFileKilled,
                         testing::Values("mover.file.written", "mover.filed.sent", "mover.released.received",
                                         "mover.released.received:3", "mover.file.read", "mover.file.read:3",
                                         "mover.read.sent", "mover.read.sent:3", "mover.held.received",
                                         "mover.held.received:2", "mover.copy.done:3", "mover.taken.received:2"));

}  // namespace
}  // namespace tessera::mover
