// The mover's program with parked programs whose memory goes to a file of their own: every word comes back.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mover/testing/test_mover.h"

namespace tessera::mover {
namespace {

using wire::kChunkBytes;
using wire::MoverMessage;
using wire::MoverType;

class MoverSave : public testing::Test {
 protected:
  void Away(TestMover& mover, TestProgram& program, std::uint64_t chunks) {
    program.Adopt();  // it has named all that it has
    EXPECT_EQ(mover.Move(1, MoverType::kEvict, chunks).error, 0);
    EXPECT_EQ(mover.Park(1).bytes, 0u);
  }
  int Save(TestMover& mover) {
    mover.Send({.type = MoverType::kSave, .program = 1}, file_.Get());
    return mover.Await(1, MoverType::kSaved).error;
  }
  int Unsave(TestMover& mover) {
    mover.Send({.type = MoverType::kUnsave, .program = 1});
    return mover.Await(1, MoverType::kUnsaved).error;
  }
  void ExpectBack(TestMover& mover, TestProgram& program) { mover.BringBack(program); }

  UniqueFd file_{memfd_create("suspended", MFD_CLOEXEC)};
};

TEST_F(MoverSave, EveryWordComesBack) {
  TestProgram program(3), other(3, 2);
  TestMover mover({.wanted = 3, .most = 3, .program = &program});
  Away(mover, program, 3);
  EXPECT_EQ(Save(mover), 0);
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 0; }));
  // What it leaves free is another program's meanwhile.
  mover.Program(2, other);
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 3).error, 0);
  EXPECT_EQ(mover.Move(2, MoverType::kLoad, 3).error, 0);
  EXPECT_EQ(Unsave(mover), 0);
  ExpectBack(mover, program);
}

TEST_F(MoverSave, AChangedByteIsFoundAndHarmsNothing) {
  TestProgram program(2), other(1, 2);
  TestMover mover({.wanted = 3, .most = 3, .program = &program});
  Away(mover, program, 2);
  EXPECT_EQ(Save(mover), 0);
  char byte = 0;
  ASSERT_EQ(pread(file_.Get(), &byte, 1, 100'000'000), 1);
  const char changed = static_cast<char>(byte ^ 1);
  ASSERT_EQ(pwrite(file_.Get(), &changed, 1, 100'000'000), 1);
  EXPECT_EQ(Unsave(mover), EBADMSG);
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 0; }));
  mover.Program(2, other);
  EXPECT_EQ(mover.Move(2, MoverType::kEvict, 1).error, 0);
  EXPECT_EQ(mover.Move(2, MoverType::kLoad, 1).error, 0);
  EXPECT_TRUE(other.IsIntact());
  ASSERT_EQ(pwrite(file_.Get(), &byte, 1, 100'000'000), 1);
  EXPECT_EQ(Unsave(mover), 0);
  ExpectBack(mover, program);
}

class MoverSaveKilled : public MoverSave, public testing::WithParamInterface<const char*> {};

TEST_P(MoverSaveKilled, LosesNothing) {
  TestSlots slots;
  TestProgram program(3);
  {
    TestMover mover({.fault = GetParam(), .slots = &slots, .wanted = 4, .most = 4, .program = &program});
    Away(mover, program, 3);
    mover.Send({.type = MoverType::kSave, .program = 1}, file_.Get());
    if (mover.Until([&] { return mover.Has(1, MoverType::kSaved); })) {
      mover.Send({.type = MoverType::kUnsave, .program = 1});
      EXPECT_FALSE(mover.Until([&] { return mover.Has(1, MoverType::kUnsaved); }));
    }
    mover.ExpectKilled(SIGKILL);
    program.AnswerAll();
  }
  TestMover mover({.slots = &slots, .wanted = 4, .most = 4});
  mover.Send({.type = MoverType::kFileOf, .program = 1}, file_.Get());
  mover.Program(1, program);
  program.Adopt();
  EXPECT_EQ(Save(mover), 0) << "whatever was done of it";
  EXPECT_TRUE(mover.Until([&] { return mover.pool().other == 0; }));
  EXPECT_EQ(Unsave(mover), 0);
  ExpectBack(mover, program);
}

INSTANTIATE_TEST_SUITE_P(Steps, MoverSaveKilled,
                         testing::Values("mover.save.written:2", "mover.save.finished", "mover.save.left",
                                         "mover.unsave.read:2", "mover.unsave.cleared"));

}  // namespace
}  // namespace tessera::mover
