// Chunks with holes: what is in use of them is copied, and comes back in memory of its own.
#include <gtest/gtest.h>

#include "mover/testing/test_mover.h"

namespace tessera::mover {
namespace {

using wire::kChunkBytes;
using wire::kUnitBytes;
using wire::LineMessage;
using wire::LineType;
using wire::MoverMessage;
using wire::MoverType;

TEST(MoverSparse, WholeChunksGoOutAndComeBackWithoutTheirHoles) {
  TestProgram program(4);
  TestMover mover({.wanted = 4, .most = 4, .program = &program});
  program.Use(0b1011);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).bytes, 4 * kChunkBytes) << "so much GPU memory came free";
  EXPECT_TRUE(program.IsIntact());

  const MoverMessage end = mover.Move(1, MoverType::kLoad, 4);
  EXPECT_EQ(end.error, ENODATA) << "there is nothing more to load";
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).other, 12 * kUnitBytes);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_EQ(program.OnGpu(), 12 * kUnitBytes);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverSparse, WhereThereIsRoomChunksComeBackWhole) {
  TestProgram program(4);
  TestMover mover({.wanted = 4, .most = 4, .program = &program});
  program.Use(0b1011);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).copied_out, 12 * kUnitBytes);
  mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 4 * kChunkBytes, .other = wire::kAnyHoleBytes});
  EXPECT_EQ(mover.Await(1, MoverType::kLoaded).error, 0);
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).other, 4 * kChunkBytes);
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).copied_in, 12 * kUnitBytes);
  EXPECT_EQ(program.OnGpu(), 4 * kChunkBytes);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverSparse, AsManyComeBackWholeAsThereIsRoomForTheirHoles) {
  TestProgram program(4);
  TestMover mover({.wanted = 4, .most = 4, .program = &program});
  program.Use(0xffff);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
  mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 3 * kChunkBytes, .other = 2 * 16 * kUnitBytes});
  EXPECT_EQ(mover.Await(1, MoverType::kLoaded).error, 0);
  EXPECT_EQ(program.Out(), 0u);
  EXPECT_EQ(program.OnGpu(), 3 * kChunkBytes);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverSparse, SparseChunksGoOutAgainInPieces) {
  TestProgram program(3);
  TestMover mover({.wanted = 4, .most = 4, .program = &program});
  program.Use(0x80000001);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 3).error, 0);
  mover.Move(1, MoverType::kLoad, 3);
  ASSERT_EQ(program.OnGpu(), 6 * kUnitBytes);
  mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = 3 * kUnitBytes});
  EXPECT_EQ(mover.Await(1, MoverType::kEvicted).error, 0);
  EXPECT_EQ(program.Out(), 2u) << "one of them is not enough";
  EXPECT_EQ(mover.Last(1, MoverType::kMoved).bytes, 3 * kChunkBytes + 4 * kUnitBytes);
  EXPECT_TRUE(program.IsIntact());
  mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 4 * kUnitBytes});
  EXPECT_EQ(mover.Await(1, MoverType::kLoaded).error, 0);
  EXPECT_EQ(program.OnGpu(), 6 * kUnitBytes);
  EXPECT_TRUE(program.IsIntact());
}

TEST(MoverSparse, WhatOneQuestionLeavesAndAnotherLeavesIsPlaceForAChunk) {
  for (const std::uint32_t units : {11u, 20u, 21u, 31u}) {
    for (const std::uint32_t chunks : {5u, 7u}) {
      TestProgram program(chunks);
      TestMover mover({.wanted = chunks, .most = chunks, .program = &program});
      program.Use((1u << units) - 1);
      EXPECT_EQ(mover.Move(1, MoverType::kEvict, chunks).error, 0);
      mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = chunks * units * kUnitBytes});
      EXPECT_EQ(mover.Await(1, MoverType::kLoaded).error, 0);
      EXPECT_EQ(program.Out(), 0u) << chunks << " of " << units << " units";
      EXPECT_TRUE(program.IsIntact());
    }
  }
}

TEST(MoverSparse, NoMoreComesInThanThereIsRoomFor) {
  TestProgram program(2);
  TestMover mover({.wanted = 2, .most = 2, .program = &program});
  program.Use(0b111);
  EXPECT_EQ(mover.Move(1, MoverType::kEvict, 2).error, 0);
  mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 5 * kUnitBytes});
  const MoverMessage end = mover.Await(1, MoverType::kLoaded);
  EXPECT_EQ(end.error, ENODATA);
  EXPECT_EQ(end.bytes, 2 * kUnitBytes);
  EXPECT_EQ(program.Out(), 1u);
}

TEST(MoverSparse, TheProgramIsToldThatItIsForTheHoles) {
  TestProgram program(2);
  TestMover mover({.wanted = 2, .most = 2, .program = &program});
  mover.Send({.type = MoverType::kEvict, .program = 1, .bytes = kChunkBytes, .other = 1});
  EXPECT_EQ(mover.Await(1, MoverType::kEvicted).error, 0);
  EXPECT_EQ(program.seen[LineType::kSqueeze], 1);
  EXPECT_EQ(program.seen[LineType::kEvict], 0);
}

TEST(MoverSparse, AMoverThatDiesLosesNothing) {
  TestProgram program(4);
  TestSlots slots;
  {
    TestMover mover({.fault = "mover.want.imported:2", .slots = &slots, .wanted = 4, .most = 4, .program = &program});
    program.Use(0xf0);
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, 4).error, 0);
    mover.Send({.type = MoverType::kLoad, .program = 1, .bytes = 4 * kChunkBytes});
    mover.Until([&] { return program.line() < 0; });
  }
  EXPECT_TRUE(program.IsIntact());
}

}  // namespace
}  // namespace tessera::mover
