// Random histories of programs that map and unmap memory at addresses of their own, while it moves, with the driver's
// calls failing now and then: every word stays right, and in the end nothing is left.
#include <random>

#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;

class ReservationsProperty : public HeapFixture {
 protected:
  struct Mapped {
    std::uint64_t bytes = 0, word = 0;
  };
  static constexpr std::uint64_t kSegment = 512 * kMiB;

  std::uint64_t Next(std::uint64_t most) { return random_() % most; }
  void Give(std::uint64_t bytes) {
    if (bytes > 0) room.Give(bytes);
  }

  bool Free(CUdeviceptr begin, std::uint64_t bytes) const {
    const auto next = mapped_.lower_bound(begin);
    if (next != mapped_.end() && next->first < begin + bytes) return false;
    return next == mapped_.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= begin;
  }

  // What a caller does for cuMemMap; what cannot be had now is left.
  void Map() {
    const std::uint64_t sizes[] = {2, 2, 20, 20, 20, 64, 130};
    const std::uint64_t bytes = sizes[Next(std::size(sizes))] * kMiB;
    const CUdeviceptr begin =
        segments_[Next(segments_.size())] + Next((kSegment - bytes) / wire::kUnitBytes + 1) * wire::kUnitBytes;
    if (!Free(begin, bytes)) return;
    if (Next(4) == 0) driver.FailCall(driver.Calls() + Next(6));
    std::vector<Reservations::Range> made;
    const auto parts = reserved_.PartsOf({begin, bytes});
    for (const auto& part : parts) {
      if (!BackPart(part)) break;
      made.push_back(part);
    }
    driver.FailCall(0, 0);
    if (made.size() < parts.size()) {
      for (const auto& part : made) Give(reserved_.Vacate(part.begin));
      return;
    }
    reserved_.Join({begin, bytes});
    Write(begin, mapped_[begin] = {bytes, ++words_});
  }
  bool BackPart(const Reservations::Range& part) {
    bool here = reserved_.Hold(part.begin) == CUDA_SUCCESS;
    if (!here) {  // it is recalled
      FinishAll();
      mover.Load(wire::kMostChunks);
      here = reserved_.IsHere(part.begin) == CUDA_SUCCESS;
    }
    EXPECT_TRUE(room.Take(part.bytes));
    std::uint64_t freed = 0;
    const bool made = here && reserved_.Back(part, &freed) == CUDA_SUCCESS;
    reserved_.LetGo(part.begin);
    Give(freed + (made ? 0 : part.bytes));
    return made;
  }
  void Write(CUdeviceptr begin, const Mapped& block) {
    for (std::uint64_t at = 0; at < block.bytes; at += 2 * kMiB) {
      if (driver.Valid(begin + at)) driver.Write(begin + at, block.word + at);
    }
  }
  void ExpectRight(CUdeviceptr begin, const Mapped& block) {
    for (std::uint64_t at = 0; at < block.bytes; at += 2 * kMiB) {
      if (driver.Valid(begin + at)) EXPECT_EQ(driver.Read(begin + at), block.word + at);
    }
  }
  void ExpectAllRight() {
    for (const auto& [begin, block] : mapped_) ExpectRight(begin, block);
  }
  std::map<CUdeviceptr, Mapped>::iterator Any() {
    return std::next(mapped_.begin(), static_cast<long>(Next(mapped_.size())));
  }
  void Unmap() {
    if (mapped_.empty()) return;
    const auto at = Any();
    ExpectRight(at->first, at->second);
    Give(reserved_.Vacate(at->first));
    mapped_.erase(at);
  }
  void FinishAll() {
    while (mover.OutUnderWay()) mover.FinishOut(Next(2) == 0 ? wire::kMostChunks : 0);
    while (mover.InUnderWay()) mover.FinishIn();
  }
  // The driver's own from now on, and ended.
  void Detach() {
    if (mapped_.empty()) return;
    const auto at = Any();
    FinishAll();
    const auto parts = reserved_.PartsOf({at->first, at->second.bytes});
    bool here = true;
    for (const auto& part : parts) here &= reserved_.Hold(part.begin) == CUDA_SUCCESS;
    if (!here) mover.Load(wire::kMostChunks);
    here = true;
    for (const auto& part : parts) here &= reserved_.IsHere(part.begin) == CUDA_SUCCESS;
    if (here) {
      std::uint64_t bytes = 0;
      for (const auto& [handle, piece] : reserved_.Detach(at->first, false)) {
        driver.Functions().Release(handle);
        bytes += piece;
      }
      EXPECT_EQ(bytes, at->second.bytes);
      Give(bytes);
      mapped_.erase(at);
    }
    for (const auto& part : parts) reserved_.LetGo(part.begin);
  }
  void Step() {
    switch (Next(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Map();
      case 4:
      case 5:
        return Unmap();
      case 6:
        mover.Ask(wire::LineType::kEvict, 1 + static_cast<std::uint32_t>(Next(4)));
        return;
      case 7:
        mover.Ask(wire::LineType::kLoad, 1 + static_cast<std::uint32_t>(Next(4)));
        return;
      case 8:
        FinishAll();
        mover.Settle();
        return ExpectAllRight();
      case 9:
        return Detach();
      case 10:
        if (Next(10) == 0) mover.Restart();
        return;
      default:
        FinishAll();
    }
  }

  std::mt19937_64 random_{20};
  Reservations& reserved_ = heap->Reserved();
  std::vector<CUdeviceptr> segments_;
  std::map<CUdeviceptr, Mapped> mapped_;
  std::uint64_t words_ = 1u << 30;
};

TEST_F(ReservationsProperty, RandomHistories) {
  for (int segment = 0; segment < 3; ++segment) {
    std::uint64_t freed = 0;
    segments_.emplace_back();
    ASSERT_EQ(reserved_.Reserve(kSegment, 0, &segments_.back(), &freed), CUDA_SUCCESS);
  }
  for (int step = 0; step < 6000 && !HasFailure(); ++step) {
    Step();
    if (step % 50 == 0 && !mover.OutUnderWay() && !mover.InUnderWay()) ExpectRightFigures();
  }
  FinishAll();
  mover.Settle();
  ExpectAllRight();
  while (!mapped_.empty()) Unmap();
  for (const CUdeviceptr segment : segments_) {
    std::uint64_t freed = 0;
    EXPECT_TRUE(reserved_.Free({segment, kSegment}, &freed));
    Give(freed);
  }
}

}  // namespace
}  // namespace tessera::pager
