// Programs that allocate, use and free memory in the order of several streams, at random, against a model: no work uses
// memory that other work may still use, and memory that is live belongs to one block. The cases are the same on every
// run; RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/testing/same_cases.h"
#include "shim/load/hook.h"
#include "shim/memory/paging.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void*);
TESSERA_HOOK cuMemPoolTrimTo(CUmemoryPool, size_t);
TESSERA_HOOK cuStreamSynchronize(CUstream);
TESSERA_HOOK cuStreamDestroy_v2(CUstream);

namespace tessera::shim {
namespace {

constexpr int kStreams = 4;
using Clock = std::array<std::uint64_t, kStreams>;  // of each stream, the work that has ended or comes before

// Streams with queues of work, in the place of the fake driver's, which has one for all.
struct Streams {
  struct Work {
    Clock after{};  // what must have ended before
  };
  struct Stream {
    CUstream handle = nullptr;
    std::uint64_t submitted = 0, ended = 0;
    Clock clock{};  // what comes before anything that is submitted next
    std::deque<Work> queue;
  };
  std::array<Stream, kStreams> all;
  std::map<CUevent, std::pair<int, std::uint64_t>> events;

  int Of(CUstream handle) const {
    for (int i = 0; i < kStreams; ++i)
      if (all[static_cast<std::size_t>(i)].handle == handle) return i;
    return -1;
  }
  Stream& At(int i) { return all[static_cast<std::size_t>(i)]; }

  void Submit(int i) {
    Stream& stream = At(i);
    stream.queue.push_back({stream.clock});
    stream.clock[static_cast<std::size_t>(i)] = ++stream.submitted;
  }
  // What `i` does next comes after all that `other` has been given.
  void Wait(int i, int other) {
    Clock& clock = At(i).clock;
    for (std::size_t s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], At(other).clock[s]);
    Submit(i);  // the wait is work itself
  }
  bool Advance(int i) {
    Stream& stream = At(i);
    if (stream.queue.empty()) return false;
    for (std::size_t s = 0; s < kStreams; ++s)
      if (static_cast<int>(s) != i && all[s].ended < stream.queue.front().after[s]) return false;
    stream.queue.pop_front();
    ++stream.ended;
    return true;
  }
  void RunTo(int i, std::uint64_t end) {
    while (At(i).ended < end) {
      bool any = false;
      for (int s = 0; s < kStreams; ++s) any |= Advance(s);
      RC_ASSERT(any);
    }
  }
};

Streams* streams = nullptr;

CUresult Record(CUevent event, CUstream handle) {
  const int i = streams->Of(handle);
  RC_ASSERT(i >= 0);
  streams->events[event] = {i, streams->At(i).submitted};
  return CUDA_SUCCESS;
}
bool Reached(CUevent event) {
  const auto& [i, upto] = streams->events.at(event);
  return streams->At(i).ended >= upto;
}
CUresult Query(CUevent event) { return Reached(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
CUresult AwaitEvent(CUevent event) {
  const auto& [i, upto] = streams->events.at(event);
  streams->RunTo(i, upto);
  return CUDA_SUCCESS;
}
CUresult AwaitStream(CUstream handle) {
  const int i = streams->Of(handle);
  streams->RunTo(i, streams->At(i).submitted);
  return CUDA_SUCCESS;
}

class StreamMemoryProperty : public ShimFixture {
 public:
  StreamMemoryProperty() {
    Swap();
    for (const auto& [symbol, function] : std::initializer_list<std::pair<unsigned, void*>>{
             {k_cuEventRecord, reinterpret_cast<void*>(&Record)},
             {k_cuEventQuery, reinterpret_cast<void*>(&Query)},
             {k_cuEventSynchronize, reinterpret_cast<void*>(&AwaitEvent)},
             {k_cuStreamSynchronize, reinterpret_cast<void*>(&AwaitStream)}}) {
      before_.emplace_back(symbol, tessera_real_table[symbol]);
      tessera_real_table[symbol] = function;
    }
    Daemon().Set(
        [](FakeDaemon::Answers& answers) { answers.room = [](std::uint64_t) { return wire::RoomGranted{}; }; });
    Attached().Gates().Stop();  // its pacer would ask about the model's events, too
    Page().memory_credit = Page().memory_credit_keep = std::int64_t{1} << 40;
    context_ = MakeContext();
    REAL_AS(cuDeviceGetDefaultMemPool, CUmemoryPool*, CUdevice)(&pool_, device);
    for (int i = 0; i < kStreams; ++i) model_.At(i).handle = Cuda().MakeStream();
    streams = &model_;
  }
  ~StreamMemoryProperty() override {
    for (const auto& [symbol, function] : before_) tessera_real_table[symbol] = function;
    streams = nullptr;
  }
  void TestBody() override {}

  void Step() {
    // Now and then allocations have to wait for what was freed.
    if (Number(0, 4) == 0) {
      room_ += Page().room_credit.exchange(0);
    } else {
      Page().room_credit += std::exchange(room_, 0);
    }
    StreamMemory& memory = Attached().Pager()->Ordered();
    switch (Number(0, 17)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Allocate();
      case 4:
      case 5:
      case 6:
        return Free();
      case 7:
        model_.Wait(AnyStream(), AnyStream());
        return;
      case 8:
      case 9:
        model_.Advance(AnyStream());
        return;
      case 10:
        cuStreamSynchronize(model_.At(AnyStream()).handle);
        return;
      case 11:
        return Replace();
      case 12:
        if (Number(0, 3) == 0) SetThreshold(Number(0, 2) == 0 ? 0 : UINT64_MAX);
        if (Number(0, 3) == 0) cuMemPoolTrimTo(pool_, 0);
        return;
      case 13:
      case 14:
        return memory.FreeQuiet(gates_);
      case 15:
        if (Number(0, 3) == 0) memory.DropEvents(context_);  // as before a context ends that then stays
        return;
      default:
        if (Block* block = AnyBlock()) Use(*block, AnyStream());
    }
  }

  void End() {
    Page().room_credit += std::exchange(room_, 0);
    SetThreshold(0);
    while (!blocks_.empty()) Free();
    for (int i = 0; i < kStreams; ++i) cuStreamSynchronize(model_.At(i).handle);
    cuMemPoolTrimTo(pool_, 0);
    RC_ASSERT(Page().memory_credit == std::int64_t{1} << 40);
  }
  // After a failure, so that the next case begins anew.
  void Reset() {
    Page().room_credit += std::exchange(room_, 0);
    for (int i = 0; i < kStreams; ++i) cuStreamSynchronize(model_.At(i).handle);
    Attached().Pager()->FreeAllOf(nullptr, UINT64_MAX);
    blocks_.clear();
    freed_.clear();
  }

 private:
  struct Block {
    CUdeviceptr begin = 0;
    std::uint64_t bytes = 0;
    int stream = 0;  // on which it was allocated
    Clock uses{};    // by stream, the last work that uses it
  };

  static int Number(int least, int beyond) { return *rc::gen::resize(100, rc::gen::inRange(least, beyond)); }
  static int AnyStream() { return Number(0, kStreams); }
  Block* AnyBlock() {
    if (blocks_.empty()) return nullptr;
    return &std::next(blocks_.begin(), Number(0, static_cast<int>(blocks_.size())))->second;
  }
  void SetThreshold(std::uint64_t bytes) { cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes); }

  // The stream is ordered behind all work on the block, as a program has to do.
  void Follow(const Block& block, int stream) {
    if (stream != block.stream) model_.Wait(stream, block.stream);
    for (int s = 0; s < kStreams; ++s)
      if (block.uses[static_cast<std::size_t>(s)] > model_.At(stream).clock[static_cast<std::size_t>(s)])
        model_.Wait(stream, s);
  }
  void Use(Block& block, int stream) {
    Follow(block, stream);
    model_.Submit(stream);
    block.uses[static_cast<std::size_t>(stream)] = model_.At(stream).submitted;
  }

  void Allocate() {
    constexpr std::uint64_t kSizes[] = {512, 1000, 3 * kMiB, 20 * kMiB, 70 * kMiB};
    Block block{.bytes = kSizes[Number(0, 5)], .stream = AnyStream()};
    const CUresult result = cuMemAllocAsync(&block.begin, block.bytes, model_.At(block.stream).handle);
    RC_ASSERT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    if (result != CUDA_SUCCESS) return;
    for (const auto& [begin, other] : blocks_)
      RC_ASSERT(block.begin >= begin + other.bytes || begin >= block.begin + block.bytes);
    const Clock& clock = model_.At(block.stream).clock;
    for (const Block& old : freed_) {
      if (block.begin >= old.begin + old.bytes || old.begin >= block.begin + block.bytes) continue;
      for (std::size_t s = 0; s < kStreams; ++s) RC_ASSERT(old.uses[s] <= std::max(clock[s], model_.all[s].ended));
    }
    Use(block, block.stream);
    blocks_[block.begin] = block;
  }

  void Free() {
    const Block* chosen = AnyBlock();
    if (!chosen) return;
    const Block block = *chosen;
    const int stream = Number(0, 3) == 0 ? AnyStream() : block.stream;
    Follow(block, stream);
    RC_ASSERT(cuMemFreeAsync(block.begin, model_.At(stream).handle) == CUDA_SUCCESS);
    RC_ASSERT(cuMemFreeAsync(block.begin, model_.At(stream).handle) == CUDA_ERROR_INVALID_VALUE);
    blocks_.erase(block.begin);
    freed_.push_back(block);
    std::erase_if(freed_, [this](const Block& old) {
      for (std::size_t s = 0; s < kStreams; ++s)
        if (old.uses[s] > model_.all[s].ended) return false;
      return true;
    });
  }

  // A stream is destroyed, and its work goes on; a new one gets its handle. In the model it stays the same stream, but
  // nothing that is submitted to it from now on is ordered behind its work.
  void Replace() {
    const int i = AnyStream();
    for (const auto& [begin, block] : blocks_)
      if (block.uses[static_cast<std::size_t>(i)] > model_.At(i).ended) return;
    if (model_.At(i).ended < model_.At(i).submitted) return;
    const CUstream handle = model_.At(i).handle;
    RC_ASSERT(cuStreamDestroy_v2(handle) == CUDA_SUCCESS);
    Cuda().MakeStreamAgain(handle);
  }

  std::vector<std::pair<unsigned, void*>> before_;
  Streams model_;
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  FollowedPage page_;
  HostMemory host_;
  GateKeeper gates_{page_, host_};  // that has not stopped
  std::int64_t room_ = 0;           // that the page has not
  std::map<CUdeviceptr, Block> blocks_;
  std::vector<Block> freed_;  // whose work goes on
};

RC_GTEST_PROP(StreamMemory, NoWorkUsesMemoryThatOtherWorkMayUse, ()) {
  static auto* world = new StreamMemoryProperty;  // there are few devices
  const int steps = *rc::gen::inRange(1, 300);
  try {
    for (int step = 0; step < steps; ++step) world->Step();
    world->End();
  } catch (...) {
    world->Reset();
    throw;
  }
}

}  // namespace
}  // namespace tessera::shim
