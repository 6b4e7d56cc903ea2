// Threads that allocate and free while a mover moves: for the thread sanitizer, and for what is left afterwards.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;

class HeapThreadsTest : public HeapFixture {
 protected:
  void AllocateAndFree(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<CUdeviceptr> blocks;
    for (int step = 0; step < 400; ++step) {
      CUdeviceptr address = 0;
      const std::uint64_t bytes = random() % 4 ? (1 + random() % 80) * kMiB : 1 + random() % 100'000;
      if (blocks.size() < 8 && heap->Allocate(bytes, kContext, &address) == CUDA_SUCCESS) blocks.push_back(address);
      if (blocks.empty() || random() % 2) continue;
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto block = heap->Find(blocks.back() + 1);
      if (!block || block->begin != blocks.back()) ++wrong;
      heap->Heat().Touch(blocks.back(), MonotonicNow());
      if (random() % 4 == 0) Share(blocks.back());
      if (!heap->Free(blocks.back())) ++wrong;
      blocks.pop_back();
    }
    for (const CUdeviceptr block : blocks) heap->Free(block);
  }

  void Share(CUdeviceptr block) {
    Exported exported;
    if (heap->Pins().Pin(block, &exported) != CUDA_SUCCESS) return;
    std::vector<int> fds(exported.chunks);
    if (heap->Pins().Share(exported, 0, fds) != CUDA_SUCCESS) ++wrong;  // what is pinned here does not go
    for (const int fd : fds) close(fd);
  }

  void Move() {
    std::mt19937 random(7);
    while (!done) {
      const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % 8);
      switch (random() % 8) {
        case 0:
        case 1:
          mover.Ask(wire::LineType::kEvict, count);
          break;
        case 2:
        case 3:
          mover.Ask(wire::LineType::kLoad, count);
          break;
        case 4:
          if (mover.OutUnderWay()) mover.FinishOut(count);
          break;
        case 5:
          if (mover.InUnderWay()) mover.FinishIn(count);
          break;
        case 6:
          mover.Settle();
          if (heap->Heat().HotOut(MonotonicNow()) > heap->Figures().swapped + 8 * kChunk) ++wrong;
          break;
        default:
          if (random() % 20 == 0) mover.Restart();
          mover.HearDropped();
          heap->Trim(MonotonicNow() - kMillisecond);
      }
    }
  }

  std::atomic<bool> done = false;
  std::atomic<int> wrong = 0;
};

TEST_F(HeapThreadsTest, NothingIsLostBetweenThreads) {
  std::thread moves([&] { Move(); });
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 3; ++seed) threads.emplace_back([this, seed] { AllocateAndFree(seed); });
  for (std::thread& thread : threads) thread.join();
  done = true;
  moves.join();
  EXPECT_EQ(wrong, 0);
  ExpectRightFigures();
}

// pthread_cancel while an allocation waits for room: it takes effect when the allocation is over.
TEST(HeapCancelled, AnAllocationThatWaitsEndsFirst) {
  FakeDriver driver;
  FakeRoom room(0);
  room.SetWaits(true);
  const auto heap = Heap::Make(driver.Functions(), 0, kGiB, false, room);
  struct Waiting {
    Heap& heap;
    CUdeviceptr address = 0;
  } waiting{.heap = *heap};
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, nullptr,
                [](void* arg) -> void* {
                  auto& self = *static_cast<Waiting*>(arg);
                  EXPECT_EQ(self.heap.Allocate(kMiB, kContext, &self.address), CUDA_SUCCESS);
                  pthread_testcancel();
                  return arg;
                },
                &waiting),
            0);
  room.UntilSomebodyWaits();
  pthread_cancel(thread);
  room.Add(kGiB);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(heap->Free(waiting.address)) << "it was cancelled inside";
  room.SetWaits(false);
  CUdeviceptr next = 0;
  EXPECT_EQ(heap->Allocate(kMiB, kContext, &next), CUDA_SUCCESS);
  heap->Free(next);
  heap->Trim(kNever);
  EXPECT_EQ(room.Taken(), 0u);
}

}  // namespace
}  // namespace tessera::pager
