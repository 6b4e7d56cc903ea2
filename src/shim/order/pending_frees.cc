#include "shim/order/pending_frees.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "pager/heap/placement.h"
#include "shim/gate/capture.h"
#include "shim/load/hook.h"

TESSERA_HOOK cuEventSynchronize(tessera::cuda::CUevent);

namespace tessera::shim {

using namespace cuda;

namespace {

std::atomic<std::int64_t> in_process{0};

// The answers of a driver that says nothing about the work: it has not come there, or a capture forbids the question.
bool SaysNothing(CUresult result) { return result == CUDA_ERROR_NOT_READY || (result >= 900 && result <= 908); }

// Records an event by `record`, and makes it before if there is none.
template <typename Record>
CUresult RecordIn(CUcontext context, CUevent* event, Record record) {
  CUcontext before = nullptr;
  CUresult result = REAL_AS(cuCtxPushCurrent_v2, CUcontext)(context);
  if (result != CUDA_SUCCESS) return result;
  if (!*event) result = REAL_AS(cuEventCreate, CUevent*, unsigned)(event, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) result = record();
  REAL_AS(cuCtxPopCurrent_v2, CUcontext*)(&before);
  return result;
}

void Destroy(CUcontext context, const std::vector<CUevent>& events) {
  CUcontext before = nullptr;
  if (events.empty() || REAL_AS(cuCtxPushCurrent_v2, CUcontext)(context) != CUDA_SUCCESS) return;
  for (const CUevent event : events) REAL_AS(cuEventDestroy_v2, CUevent)(event);
  REAL_AS(cuCtxPopCurrent_v2, CUcontext*)(&before);
}

}  // namespace

bool PendingFrees::AnyInProcess() { return in_process.load(std::memory_order_relaxed) > 0; }

bool PendingFrees::Add(const UnsettledFree& free) {
  const MutexLock lock(mutex_);
  if (!ids_.insert(free.block.id).second) return false;
  unsettled_.push_back(free);
  ++in_process;
  return true;
}

CUresult PendingFrees::AddBehind(const pager::Block& block, const StreamName& name) {
  const MutexLock lock(mutex_);
  if (ids_.contains(block.id)) return CUDA_ERROR_INVALID_VALUE;
  auto at = streams_.find(name);
  if (at == streams_.end()) {
    CUcontext context = name.context;
    if (!context) {
      const CUresult known = REAL_AS(cuStreamGetCtx, CUstream, CUcontext*)(name.stream, &context);
      if (known != CUDA_SUCCESS) return known;
    }
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    at = streams_.emplace(name, Stream{.context = context}).first;
  }
  Stream& stream = at->second;
  stream.frees.emplace(pager::AddressesOf(block.bytes), Freed{block, ++stream.last});
  stream.touched = true;
  ids_.insert(block.id);
  ++in_process;
  if (name.thread != 0) MarkStream(name, stream);
  return CUDA_SUCCESS;
}

bool PendingFrees::Has(const pager::Block& block) const {
  const MutexLock lock(mutex_);
  return ids_.contains(block.id);
}

bool PendingFrees::Any() const {
  const MutexLock lock(mutex_);
  return !ids_.empty();
}

// The block is not pending any more.
void PendingFrees::Forget(const pager::Block& block) {
  ids_.erase(block.id);
  --in_process;
}

std::optional<pager::Block> PendingFrees::TakeFrom(const StreamName& name, std::uint64_t bytes, const void* owner) {
  const MutexLock lock(mutex_);
  const auto found = streams_.find(name);
  if (found == streams_.end()) return std::nullopt;
  Stream& stream = found->second;
  stream.touched = true;
  const auto [first, last] = stream.frees.equal_range(pager::AddressesOf(bytes));
  for (auto at = last; at != first;) {
    if ((--at)->second.block.owner != owner) continue;
    const pager::Block block = at->second.block;
    stream.frees.erase(at);
    Forget(block);
    if (stream.frees.empty()) DropMarks(stream);
    return block;
  }
  return std::nullopt;
}

// ---- marks ----

// If the stream is gone, the work of its context is to be waited for. If the context has failed, its GPU does nothing
// any more.
void PendingFrees::MarkStream(const StreamName& name, Stream& stream) {
  if (stream.marked == stream.last || stream.frees.empty() || AnyCapture()) return;
  if (name.thread != 0 && name.thread != ThreadNumber()) return;
  Placed mark{.upto = stream.last};
  std::vector<CUevent>& spare = spare_[stream.context];
  if (!spare.empty()) {
    mark.event = spare.back();
    spare.pop_back();
  }
  const CUresult result = RecordIn(stream.context, &mark.event,
                                   [&] { return REAL_AS(cuEventRecord, CUevent, CUstream)(mark.event, name.stream); });
  if (result == CUDA_SUCCESS) {
    stream.marks.push_back(mark);
    stream.marked = stream.last;
    return;
  }
  if (mark.event) spare_[stream.context].push_back(mark.event);
  if (SaysNothing(result)) return;
  if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
      result == CUDA_ERROR_INVALID_VALUE) {
    for (const auto& [bytes, freed] : stream.frees) unsettled_.push_back({freed.block, stream.context});
  } else {
    for (const auto& [bytes, freed] : stream.frees) reached_.push_back(freed.block);
  }
  stream.frees.clear();
  DropMarks(stream);
}

void PendingFrees::DropMarks(Stream& stream) {
  std::vector<CUevent>& spare = spare_[stream.context];
  for (const Placed& mark : stream.marks) spare.push_back(mark.event);
  stream.marks.clear();
  stream.marked = stream.reached = stream.last;
}

void PendingFrees::Mark() {
  const MutexLock lock(mutex_);
  for (auto& [name, stream] : streams_) MarkStream(name, stream);
}

// Moves the frees whose mark has been reached to reached_.
void PendingFrees::LookAt(Stream& stream) {
  const std::uint64_t before = stream.reached;
  while (!stream.marks.empty()) {
    const Placed mark = stream.marks.front();
    if (SaysNothing(REAL_AS(cuEventQuery, CUevent)(mark.event))) break;
    stream.reached = mark.upto;
    spare_[stream.context].push_back(mark.event);
    stream.marks.pop_front();
  }
  if (stream.reached == before) return;
  for (auto at = stream.frees.begin(); at != stream.frees.end();) {
    if (at->second.number > stream.reached) {
      ++at;
      continue;
    }
    reached_.push_back(at->second.block);
    at = stream.frees.erase(at);
  }
}

std::vector<pager::Block> PendingFrees::TakeReached() {
  const MutexLock lock(mutex_);
  if (ids_.empty() || AnyCapture()) return {};
  const RelaxedCapture relaxed;  // another thread's capture may begin meanwhile
  for (auto at = streams_.begin(); at != streams_.end();) {
    LookAt(at->second);
    // Threads end without a word: their streams are not kept in the table for later.
    at = at->first.thread != 0 && at->second.frees.empty() && at->second.marks.empty() ? streams_.erase(at)
                                                                                       : std::next(at);
  }
  for (auto at = ended_.begin(); at != ended_.end();) {
    LookAt(*at);
    at = at->frees.empty() ? ended_.erase(at) : std::next(at);
  }
  return TakeAllReached();
}

std::vector<pager::Block> PendingFrees::TakeQuiet() {
  const MutexLock lock(mutex_);
  if (ids_.empty() || AnyCapture()) return {};
  const RelaxedCapture relaxed;
  for (auto& [name, stream] : streams_) {
    if (std::exchange(stream.touched, false)) continue;
    MarkStream(name, stream);
    LookAt(stream);
  }
  MarkUnsettled();
  for (Stream& stream : ended_) LookAt(stream);
  return TakeAllReached();
}

// What waits for all work of a context gets a mark behind that. Where the driver has none, the program's next call
// waits.
void PendingFrees::MarkUnsettled() {
  std::map<CUcontext, Stream> streams;
  for (const UnsettledFree& each : std::exchange(unsettled_, {})) {
    Stream& stream = streams[each.context];
    stream.frees.emplace(pager::AddressesOf(each.block.bytes), Freed{each.block, ++stream.last});
  }
  for (auto& [context, stream] : streams) {
    Placed mark{.upto = stream.last};
    const auto record = [&] { return REAL_AS(cuCtxRecordEvent, CUcontext, CUevent)(context, mark.event); };
    if (context && RecordIn(context, &mark.event, record) == CUDA_SUCCESS) {
      stream.context = context;
      stream.marks.push_back(mark);
      stream.marked = mark.upto;
      ended_.push_back(std::move(stream));
      continue;
    }
    if (mark.event) spare_[context].push_back(mark.event);
    for (const auto& [bytes, freed] : stream.frees) unsettled_.push_back({freed.block, context});
  }
}

std::vector<pager::Block> PendingFrees::TakeAllReached() {
  for (const pager::Block& block : reached_) Forget(block);
  return std::exchange(reached_, {});
}

std::vector<UnsettledFree> PendingFrees::TakeUnsettled(bool all) {
  std::vector<UnsettledFree> taken;
  std::vector<std::pair<CUcontext, CUevent>> awaited;
  {
    const MutexLock lock(mutex_);
    if (ids_.empty() || AnyCapture()) return {};
    const auto take = [&](Stream& stream) {
      // What has no mark has a stream that this thread cannot name.
      for (const auto& [bytes, freed] : stream.frees)
        taken.push_back({freed.block, freed.number > stream.marked ? stream.context : nullptr});
      for (const Placed& mark : stream.marks) awaited.emplace_back(stream.context, mark.event);
      stream.frees.clear();
      stream.marks.clear();
      stream.marked = stream.reached = stream.last;
    };
    if (all) {
      for (auto& [name, stream] : streams_) {
        MarkStream(name, stream);
        take(stream);
      }
      for (Stream& stream : ended_) take(stream);
      ended_.clear();
      for (const pager::Block& block : std::exchange(reached_, {})) taken.push_back({block, nullptr});
    }
    for (const UnsettledFree& each : std::exchange(unsettled_, {})) taken.push_back(each);
    for (const UnsettledFree& each : taken) Forget(each.block);
  }
  for (const auto& [context, event] : awaited) cuEventSynchronize(event);  // the hook: the end of the work is seen
  const MutexLock lock(mutex_);
  for (const auto& [context, event] : awaited) {
    // If the context has ended meanwhile, so have its events.
    if (const auto spare = spare_.find(context); spare != spare_.end()) spare->second.push_back(event);
  }
  return taken;
}

// ---- streams and contexts end ----

void PendingFrees::EndStream(CUstream handle) {
  const MutexLock lock(mutex_);
  const auto at = streams_.find({.stream = handle});
  if (at == streams_.end()) return;
  Stream& stream = at->second;
  MarkStream(at->first, stream);
  // While another stream captures there can be no mark.
  for (auto each = stream.frees.begin(); each != stream.frees.end();) {
    if (each->second.number <= stream.marked) {
      ++each;
      continue;
    }
    unsettled_.push_back({each->second.block, stream.context});
    each = stream.frees.erase(each);
  }
  if (stream.frees.empty()) {
    DropMarks(stream);
  } else {
    ended_.push_back(std::move(stream));
  }
  streams_.erase(at);
}

void PendingFrees::DropEventsOf(CUcontext context) {
  const MutexLock lock(mutex_);
  const RelaxedCapture relaxed;
  std::vector<CUevent> events;
  // Streams that are gone keep their marks: they could get no new ones.
  for (auto& [name, stream] : streams_) {
    if (stream.context != context) continue;
    for (const Placed& mark : stream.marks) events.push_back(mark.event);
    stream.marks.clear();
    stream.marked = stream.reached;
  }
  if (const auto spare = spare_.find(context); spare != spare_.end()) {
    events.insert(events.end(), spare->second.begin(), spare->second.end());
    spare_.erase(spare);
  }
  Destroy(context, events);
}

void PendingFrees::LeaveContext(CUcontext context, CUcontext heir) {
  const MutexLock lock(mutex_);
  const RelaxedCapture relaxed;
  std::vector<CUevent> events;
  const auto leave = [&](Stream& stream) TESSERA_REQUIRES(mutex_) {
    if (stream.context != context) return false;
    for (const auto& [bytes, freed] : stream.frees) unsettled_.push_back({freed.block, heir});
    for (const Placed& mark : stream.marks) events.push_back(mark.event);
    return true;
  };
  for (auto at = streams_.begin(); at != streams_.end();) at = leave(at->second) ? streams_.erase(at) : std::next(at);
  for (auto at = ended_.begin(); at != ended_.end();) at = leave(*at) ? ended_.erase(at) : std::next(at);
  for (UnsettledFree& each : unsettled_) {
    if (each.context == context) each.context = heir;
  }
  const auto spare = spare_.extract(context);
  if (spare) events.insert(events.end(), spare.mapped().begin(), spare.mapped().end());
  Destroy(context, events);
}

// Forgets the blocks of the context. True: the stream is the context's, and the others in it are free.
bool PendingFrees::EndsWith(Stream& stream, CUcontext context) {
  for (auto at = stream.frees.begin(); at != stream.frees.end();) {
    const pager::Block& block = at->second.block;
    if (block.context != context && stream.context != context) {
      ++at;
      continue;
    }
    if (block.context == context) {
      Forget(block);
    } else {
      reached_.push_back(block);
    }
    at = stream.frees.erase(at);
  }
  return stream.context == context;
}

void PendingFrees::ForgetAllOf(CUcontext context) {
  const MutexLock lock(mutex_);
  for (auto at = streams_.begin(); at != streams_.end();)
    at = EndsWith(at->second, context) ? streams_.erase(at) : std::next(at);
  for (auto at = ended_.begin(); at != ended_.end();) at = EndsWith(*at, context) ? ended_.erase(at) : std::next(at);
  std::vector<pager::Block> reached;
  for (const pager::Block& block : reached_) {
    if (block.context == context) {
      Forget(block);
    } else {
      reached.push_back(block);
    }
  }
  reached_ = std::move(reached);
  std::vector<UnsettledFree> unsettled;
  for (const UnsettledFree& each : unsettled_) {
    if (each.block.context == context) {
      Forget(each.block);
    } else {
      unsettled.push_back({each.block, each.context == context ? nullptr : each.context});
    }
  }
  unsettled_ = std::move(unsettled);
  spare_.erase(context);
}

}  // namespace tessera::shim
