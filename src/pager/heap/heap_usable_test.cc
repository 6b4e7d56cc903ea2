// What is free can be had: histories as frameworks make them, on a heap whose room is bounded. When there is too
// little, the test does what the daemon does: it has chunks with holes brought out and back. After some steps each, all
// that is said to be free, less 2 %, is asked for in one block.
#include <random>

#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;

constexpr std::uint64_t kLimit = 10 * kGiB;

class BoundedRoom : public FakeRoom {
 public:
  bool Take(std::uint64_t bytes) override {
    while (Taken() + bytes > kLimit) {
      if (mover == nullptr || mover->Squeeze(2) == 0) return false;
    }
    return FakeRoom::Take(bytes);
  }
  FakeMover* mover = nullptr;
};

class HeapUsable : public testing::Test {
 protected:
  explicit HeapUsable() { room_.mover = &mover_; }

  // As cuMemAlloc and cuMemGetInfo have it.
  bool Allocate(std::uint64_t bytes, std::uint64_t word = 0) {
    const std::uint64_t charge = AddressesOf(bytes);
    if (charged_ + charge > kLimit) return false;
    CUdeviceptr address = 0;
    if (heap_->Allocate(bytes, kContext, &address) != CUDA_SUCCESS) return false;
    charged_ += charge;
    blocks_.push_back({address, bytes, word});
    if (word != 0) driver_.Write(address, word);
    return true;
  }
  void Free(std::size_t index) {
    const Block block = blocks_[index];
    if (block.word != 0) EXPECT_EQ(driver_.Read(block.begin), block.word);
    EXPECT_TRUE(heap_->Free(block.begin));
    charged_ -= AddressesOf(block.bytes);
    blocks_[index] = blocks_.back();
    blocks_.pop_back();
  }
  // PyTorch's empty_cache() frees whole segments of one kind, for instance.
  template <typename Is>
  void FreeThose(Is is) {
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      if (is(blocks_[i])) Free(i);
    }
  }
  std::uint64_t FreeBytes() const {
    const HeapFigures figures = heap_->Figures();
    const std::uint64_t unused = kLimit - charged_, lost = figures.live - figures.used + figures.stuck;
    return unused - std::min(unused, lost);
  }
  void ExpectUsable(int step) {
    const std::uint64_t free = FreeBytes(), asked = free / 100 * 98;
    if (asked == 0) return;
    ASSERT_TRUE(Allocate(asked)) << "step " << step << ": " << free / kMiB << " MiB are said to be free";
    Free(blocks_.size() - 1);
  }

  void TearDown() override {
    while (!blocks_.empty()) Free(blocks_.size() - 1);
    heap_->Trim(kNever);
    EXPECT_EQ(driver_.Handles(), 0u);
    EXPECT_EQ(driver_.Mappings(), 0u);
    EXPECT_TRUE(driver_.Complaints().empty());
    EXPECT_TRUE(mover_.Complaints().empty());
  }

  std::uint64_t Number(std::uint64_t least, std::uint64_t most) { return least + random_() % (most - least + 1); }

  struct Block {
    CUdeviceptr begin;
    std::uint64_t bytes, word;
  };
  FakeDriver driver_;
  BoundedRoom room_;
  std::unique_ptr<Heap> heap_ = Heap::Make(driver_.Functions(), 0, 8 * kLimit, false, room_);
  LineAgent agent_{*heap_};
  FakeMover mover_{driver_, room_, agent_};
  std::vector<Block> blocks_;
  std::uint64_t charged_ = 0;
  std::mt19937_64 random_{1};
};

// The caching allocator of PyTorch: small tensors in segments of 2 MiB, medium ones in segments of 20 MiB, large ones
// rounded to 2 MiB. Beside it small allocations of libraries.
TEST_F(HeapUsable, PyTorch) {
  std::uint64_t word = 1;
  for (int step = 0; step < 60'000; ++step) {
    const std::uint64_t kind = Number(0, 99);
    if (kind < 35) {
      Allocate(2 * kMiB, ++word);
    } else if (kind < 50) {
      Allocate(20 * kMiB, ++word);
    } else if (kind < 56) {
      Allocate(2 * kMiB * Number(6, 150), ++word);
    } else if (kind < 60) {
      Allocate(Number(1, 1'500'000), ++word);
    } else if (!blocks_.empty()) {
      Free(Number(0, blocks_.size() - 1));
    }
    if (step % 2'000 == 1'999) FreeThose([](const Block& block) { return block.bytes == 20 * kMiB; });
    if (step % 9'000 == 8'999) FreeThose([](const Block& block) { return block.bytes != 2 * kMiB; });
    if (step % 250 == 249) ASSERT_NO_FATAL_FAILURE(ExpectUsable(step));
  }
}

// vLLM: weights in blocks of many sizes, and scratch memory that is freed; then the cache, 90 % of what is free. It
// sleeps and wakes up.
TEST_F(HeapUsable, Vllm) {
  for (int step = 0; step < 300; ++step) {
    for (int n = 0; n < 60; ++n) Allocate(kMiB * Number(1, 120) + Number(0, 1'000));
    for (int n = 0; n < 40 && !blocks_.empty(); ++n) Free(Number(0, blocks_.size() - 1));
    ASSERT_NO_FATAL_FAILURE(ExpectUsable(step));
    const std::uint64_t cache = FreeBytes() / 10 * 9;
    ASSERT_TRUE(Allocate(cache, 7)) << step;
    Free(blocks_.size() - 1);
    if (step % 10 == 9) FreeThose([this](const Block&) { return Number(0, 9) > 0; });
  }
}

// RMM: a pool that takes half of what is free, and grows by what it lacks. JAX: 75 % of it at the start.
TEST_F(HeapUsable, RmmAndJax) {
  for (int step = 0; step < 40'000; ++step) {
    switch (Number(0, 9)) {
      case 0:
        Allocate(std::max<std::uint64_t>(FreeBytes() / 2, 1), 3);
        break;
      case 1:
        Allocate(std::max<std::uint64_t>(FreeBytes() / 4 * 3, 1), 4);
        break;
      case 2:
      case 3:
      case 4:
        Allocate(Number(1, 64) << Number(8, 20), 5);
        break;
      default:
        if (!blocks_.empty()) Free(Number(0, blocks_.size() - 1));
    }
    if (step % 100 == 99) ASSERT_NO_FATAL_FAILURE(ExpectUsable(step));
  }
}

// Nearly every chunk of PyTorch has some hole. In turns, all of them go out and come back: each in one piece.
TEST_F(HeapUsable, ChunksWithHolesMoveWhole) {
  std::uint64_t word = 1;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint64_t kind = Number(0, 99);
    if (kind < 60) {
      Allocate(kind < 40 ? 2 * kMiB : 20 * kMiB, ++word);
    } else if (!blocks_.empty()) {
      Free(Number(0, blocks_.size() - 1));
    }
    if (step % 500 != 499) continue;
    const std::size_t made = mover_.CameIn(), sparse = mover_.CameSparse();
    std::size_t out = 0, in = 0;
    while (const std::uint32_t moved = mover_.Evict(8)) out += moved;
    while (const std::uint32_t moved = mover_.Load(8)) in += moved;
    ASSERT_EQ(in, out);
    ASSERT_EQ(mover_.CameIn() - made, in) << "one piece for each chunk";
    ASSERT_EQ(mover_.CameSparse(), sparse);
    ASSERT_EQ(heap_->Figures().sparse, 0u);
    ASSERT_EQ(room_.Taken(), heap_->Figures().resident);
  }
}

// The two histories of docs/memory.md.
TEST_F(HeapUsable, WhatIsFreedBetweenSmallBlocksIsOneBlock) {
  const auto alternate = [&](std::uint64_t large, std::uint64_t small, std::uint64_t word) {
    while (Allocate(large, ++word) && Allocate(small, ++word)) continue;
    FreeThose([&](const Block& block) { return block.bytes == large; });
    ExpectUsable(0);
    FreeThose([](const Block&) { return true; });
  };
  alternate(20 * kMiB, 2 * kMiB, 100);
  alternate(120 * kMiB, 2 * kMiB, 10'000);
  alternate(30 * kMiB, kMiB / 2, 20'000);
}

TEST_F(HeapUsable, WithoutMovesHolesAreNotFree) {
  room_.mover = nullptr;
  while (Allocate(20 * kMiB) && Allocate(2 * kMiB)) continue;
  FreeThose([&](const Block& block) { return block.bytes == 20 * kMiB; });
  heap_->Trim(kNever);
  const std::uint64_t usable = FreeBytes() - heap_->Figures().holes;
  EXPECT_TRUE(usable < 2 * kMiB || Allocate(usable / 100 * 98));
}

}  // namespace
}  // namespace tessera::pager
