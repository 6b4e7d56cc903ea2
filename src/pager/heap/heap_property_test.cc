// A program that allocates, writes and frees while its memory is moved, against a model: whatever the mover and the
// driver do, an address is valid whenever the program runs, and holds what was written. The cases are the same on every
// run; RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <iterator>

#include "base/testing/same_cases.h"
#include "pager/testing/heap_fixture.h"

namespace tessera::pager {
namespace {

using namespace cuda;
using wire::kChunkBytes;
using wire::LineType;

class World {
 public:
  void Step() {
    // A driver that fails now and then, which is not the program's fault: it does not see it, but for allocations.
    if (Number(0, 8) == 0) {
      driver_.FailCall(static_cast<std::uint64_t>(Number(1, 12)));
    } else {
      driver_.FailCall(0, 0);
    }
    switch (Number(0, 14)) {
      case 0:
      case 1:
      case 2:
        return Allocate();
      case 3:
        return Free();
      case 4:
        moves_ |= mover_.Ask(LineType::kEvict, Count()) > 0;
        return;
      case 5:
        if (mover_.OutUnderWay()) mover_.FinishOut(Count() - 1);
        return;
      case 6:
        moves_ |= mover_.Ask(LineType::kLoad, Count()) > 0;
        return;
      case 7:
        if (mover_.InUnderWay()) mover_.FinishIn(Count() - 1);
        return;
      case 8:
        return Run();
      case 9:
        mover_.HearDropped();
        return;
      case 10:
        if (Number(0, 3) == 0) mover_.Restart();
        return;
      case 11:
        return Export();
      default:
        if (Block* block = AnyBlock()) heap_->Heat().Touch(block->begin + block->bytes / 2, Number(0, 100) * kSecond);
        heap_->Trim(MonotonicNow() - Number(0, 2) * kSecond);
    }
  }

  void Check() {
    WriteLate();
    const HeapFigures figures = heap_->Figures();
    RC_ASSERT(room_.Taken() == figures.resident);
    RC_ASSERT(room_.Told() == figures);
    RC_ASSERT(driver_.DeviceBytes() == figures.resident + figures.coming);
    RC_ASSERT(driver_.Complaints() == std::vector<std::string>{});
    RC_ASSERT(mover_.Complaints() == std::vector<std::string>{});
    if (moves_) return;  // the program is stopped
    for (const auto& [begin, block] : blocks_) {
      for (const std::uint64_t offset : Offsets(block)) {
        RC_ASSERT(driver_.Valid(begin + offset));
        if (block.written) RC_ASSERT(driver_.Read(begin + offset) == block.word + offset);
      }
    }
  }

  void End() {
    driver_.FailCall(0, 0);
    for (const auto& [begin, block] : blocks_) RC_ASSERT(heap_->Free(begin));
    mover_.Restart();
    heap_->Trim(kNever);
    RC_ASSERT(driver_.Handles() == 0u);
    RC_ASSERT(driver_.Mappings() == 0u);
    RC_ASSERT(room_.Taken() == 0u);
    RC_ASSERT(driver_.Complaints() == std::vector<std::string>{});
  }

 private:
  struct Block {
    CUdeviceptr begin = 0;
    std::uint64_t bytes = 0, word = 0;
    bool written = false;
  };
  // A part of a chunk's memory that others got.
  struct Other {
    UniqueFd file;
    std::uint64_t begin = 0, end = 0;
    CUdeviceptr block = 0;
    bool freed = false;
  };

  static int Number(int least, int beyond) { return *rc::gen::resize(100, rc::gen::inRange(least, beyond)); }
  static std::uint32_t Count() { return static_cast<std::uint32_t>(Number(1, 10)); }
  Block* AnyBlock() {
    if (blocks_.empty()) return nullptr;
    return &std::next(blocks_.begin(), Number(0, static_cast<int>(blocks_.size())))->second;
  }

  // Where it is looked at: both ends, and each chunk.
  static std::vector<std::uint64_t> Offsets(const Block& block) {
    std::vector<std::uint64_t> offsets = {0, block.bytes - 1};
    for (std::uint64_t at = kChunkBytes; at < block.bytes; at += kChunkBytes) offsets.push_back(at);
    return offsets;
  }

  void Allocate() {
    const std::uint64_t bytes = Number(0, 3) == 0 ? static_cast<std::uint64_t>(Number(1, 2'000'000))
                                                  : static_cast<std::uint64_t>(Number(1, 100)) << 20;
    Block block{.begin = 0, .bytes = bytes, .word = next_word_ += 1ull << 32};
    const CUresult result = heap_->Allocate(bytes, kContext, &block.begin);
    RC_ASSERT(result == CUDA_SUCCESS || result == CUDA_ERROR_UNKNOWN);  // the driver's own word
    if (result != CUDA_SUCCESS) return;
    for (const auto& [begin, other] : blocks_)
      RC_ASSERT(block.begin >= begin + other.bytes || begin >= block.begin + bytes);
    blocks_[block.begin] = block;
    if (!moves_) Write();
  }

  void Export() {
    const Block* block = AnyBlock();
    Exported exported;
    if (!block || heap_->Pins().Pin(block->begin, &exported) != CUDA_SUCCESS) return;
    std::vector<int> fds(exported.chunks);
    if (heap_->Pins().Share(exported, 0, fds) != CUDA_SUCCESS) return;
    for (std::uint64_t n = 0; n < fds.size(); ++n) {
      const std::uint64_t from = n * exported.chunk_bytes;
      others_.push_back({.file = UniqueFd(fds[n]),
                         .begin = std::max(from, exported.offset) - from,
                         .end = std::min(from + exported.chunk_bytes, exported.offset + block->bytes) - from,
                         .block = block->begin});
    }
  }

  // Others may write to memory that they got of a block, even long after the block was freed.
  void WriteLate() {
    for (const Other& other : others_) {
      if (!other.freed) continue;
      auto words = driver_.WordsOf(other.file);
      for (auto& [offset, word] : words) {
        if (offset >= other.begin && offset < other.end) word = ~0ull;
      }
      driver_.SetWords(other.file, words);
    }
  }

  void Free() {
    const Block* block = AnyBlock();
    if (!block) return;
    for (Other& other : others_) other.freed |= other.block == block->begin;
    RC_ASSERT(heap_->Free(block->begin));
    blocks_.erase(block->begin);
  }

  // The mover is done, and the program runs; it writes to all that is new, and to some of the rest.
  void Run() {
    while (mover_.OutUnderWay()) mover_.FinishOut();
    while (mover_.InUnderWay()) mover_.FinishIn();
    if (mover_.Settle() != CUDA_SUCCESS) {
      moves_ = true;
      return;
    }
    moves_ = false;
    Check();
    if (Block* block = AnyBlock()) {
      block->written = false;
      block->word = next_word_ += 1ull << 32;
    }
    Write();
  }

  void Write() {
    for (auto& [begin, block] : blocks_) {
      if (std::exchange(block.written, true)) continue;
      for (const std::uint64_t offset : Offsets(block)) driver_.Write(begin + offset, block.word + offset);
    }
  }

  FakeDriver driver_;
  FakeRoom room_;
  std::unique_ptr<Heap> heap_ = Heap::Make(driver_.Functions(), 0, 0, false, room_);
  LineAgent agent_{*heap_};
  FakeMover mover_{driver_, room_, agent_};
  std::map<CUdeviceptr, Block> blocks_;
  std::vector<Other> others_;
  std::uint64_t next_word_ = 0;
  bool moves_ = false;  // something may be neither here nor there
};

RC_GTEST_PROP(HeapProperty, AddressesStayValidAndKeepWhatWasWritten, ()) {
  World world;
  const int steps = *rc::gen::inRange(1, 300);
  for (int step = 0; step < steps; ++step) {
    world.Step();
    world.Check();
  }
  world.End();
}

}  // namespace
}  // namespace tessera::pager
