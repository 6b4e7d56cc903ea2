#include "mover/program/copier.h"

#include <gtest/gtest.h>

#include "mover/testing/conversation.h"
#include "mover/testing/fake_gpu.h"

namespace tessera::mover {
namespace {

class CopierTest : public testing::Test {
 protected:
  void Start(Direction direction, std::size_t chunks = 2) {
    auto batch = std::make_shared<Batch>();
    batch->direction = direction;
    batch->entries.assign(chunks, {.chunk = 0, .slot = slot_});
    batch->window = std::move(*gpu_.Import(Gpu::On::kThis, {}, {}));
    EXPECT_TRUE(copier_.Start(batch));
  }
  // How many copies have ended since the last look.
  std::size_t Finished() {
    const auto finished = copier_.Finished();
    return finished ? finished->size() : 1000;
  }

  FakeGpu gpu_;
  KeyTable table_ = std::move(*KeyTable::Open(Memory(4 * wire::kTableEntryBytes)));
  Pool pool_{table_};
  const Slot slot_ = [this] {
    const Slot slot = pool_.Add({});
    pool_.Admit(pool_.EntryOf(slot).memory);
    return slot;
  }();
  Copier copier_{gpu_, pool_};
};

TEST_F(CopierTest, WhatGoesOutAloneWaitsForNobody) {
  gpu_.copies_end = false;
  for (int i = 0; i < 10; ++i) Start(Direction::kOut);
  EXPECT_EQ(gpu_.copies, 10);
}

TEST_F(CopierTest, WhatGoesOutIsNotFarAheadOfWhatComesIn) {
  gpu_.copies_end = false;
  Start(Direction::kIn);
  for (int i = 0; i < 6; ++i) Start(Direction::kOut);
  EXPECT_EQ(gpu_.copies, 1 + 4);
  EXPECT_EQ(Finished(), 0u);
  EXPECT_EQ(gpu_.copies, 1 + 4);
  Start(Direction::kIn);
  EXPECT_EQ(Finished(), 0u);
  EXPECT_EQ(gpu_.copies, 2 + 5);
  Start(Direction::kOut);  // not before those that wait already
  EXPECT_EQ(gpu_.copies, 2 + 5);
}

TEST_F(CopierTest, WhatWaitsGoesWhenNothingComesInAnyMore) {
  gpu_.copies_end = false;
  Start(Direction::kIn);
  for (int i = 0; i < 6; ++i) Start(Direction::kOut);
  gpu_.copies_end = true;
  EXPECT_EQ(Finished(), 1u + 4);
  EXPECT_TRUE(copier_.busy());
  EXPECT_EQ(Finished(), 2u);
  EXPECT_FALSE(copier_.busy());
  EXPECT_EQ(gpu_.copies, 7);
}

TEST_F(CopierTest, ABrokenGpuIsToldOfWhatWaitedToo) {
  gpu_.copies_end = false;
  Start(Direction::kIn);
  for (int i = 0; i < 6; ++i) Start(Direction::kOut);
  gpu_.copies_fail = true;
  EXPECT_FALSE(copier_.Finished());
}

}  // namespace
}  // namespace tessera::mover
