#include "pager/line_agent.h"

#include <algorithm>
#include <utility>

namespace tessera::pager {

using namespace cuda;
using wire::LineType;

namespace {

// A descriptor as the driver wants it: cast to a pointer.
void* AsHandle(int fd) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd)); }

// Visits the runs of neighbours among chunks, first and count: one call of the driver's for each is quicker than one
// for each chunk.
template <typename Visit>
void ForRuns(std::vector<std::size_t> indices, Visit visit) {
  std::sort(indices.begin(), indices.end());
  for (std::size_t n = 0; n < indices.size();) {
    std::size_t end = n + 1;
    while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
    visit(indices[n], end - n);
    n = end;
  }
}

LineAgent::Answer AnswerOf(LineType type, const wire::LineMessage& to) {
  LineAgent::Answer answer{.message = {.type = type, .count = to.count}, .fds = {}};
  std::copy_n(to.chunk, to.count, answer.message.chunk);
  return answer;
}

}  // namespace

template <typename Is>
std::vector<std::size_t> LineAgent::Indices(const Message& message, Is is) const {
  const Heap::Region& region = heap_.large_;
  std::vector<std::size_t> indices;
  for (const std::uint64_t address : std::span(message.chunk, message.count)) {
    const std::size_t index = region.Has(address) ? region.IndexOf(address) : region.chunks.size();
    const bool twice = std::find(indices.begin(), indices.end(), index) != indices.end();
    if (index >= region.chunks.size() || region.AddressOf(index) != address || twice || !is(region.chunks[index]))
      return {};
    indices.push_back(index);
  }
  return indices;
}

template <typename May>
std::vector<std::size_t> LineAgent::Best(std::uint32_t most, bool coldest, May may) const {
  const std::vector<Chunk>& chunks = heap_.large_.chunks;
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (may(chunks[i])) best.push_back(i);
  }
  const std::vector<Heat> heats = heap_.Heats(MonotonicNow());
  // Pinned ones are hotter than any. Ties go by address, so that neighbours move together.
  const auto before = [&](std::size_t a, std::size_t b) {
    if (heats[a] != heats[b]) return coldest ? heats[a] < heats[b] : heats[a] > heats[b];
    return a < b;
  };
  const std::size_t count = std::min<std::size_t>({most, wire::kMostChunks, best.size()});
  std::partial_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(count), best.end(), before);
  best.resize(count);
  return best;
}

bool LineAgent::On(const Message& message, std::span<UniqueFd> fds, std::vector<Answer>* answers) {
  if (fds.size() != wire::DescriptorsOf(message)) return false;
  std::lock_guard lock(heap_.mutex_);
  if (heap_.stopped_) return false;
  TakeDroppedLocked(answers);  // first: a chunk may be stored anew after it was dropped
  // Looked at after what is offered, or wanted, counts as unsafe: no copy begins behind the back of who looks at that.
  return Act(message, fds, answers) && !heap_.room_.Released();
}

bool LineAgent::Act(const Message& message, std::span<UniqueFd> fds, std::vector<Answer>* answers) {
  const auto offered = [](const Chunk& chunk) { return chunk.offered; };
  const auto wanted = [](const Chunk& chunk) { return chunk.wanted; };
  switch (message.type) {
    case LineType::kEvict:
      answers->push_back(Offer(message.count));
      return true;
    case LineType::kLoad:
      answers->push_back(Want(message.count));
      return true;
    case LineType::kStored:
      if (Indices(message, offered).size() != message.count) return false;
      answers->push_back(Stored(message, fds));
      return true;
    case LineType::kLoaded:
      if (Indices(message, wanted).size() != message.count) return false;
      answers->push_back(Loaded(message));
      return true;
    case LineType::kKeep: {
      const auto indices = Indices(message, offered);
      for (const std::size_t i : indices) Mark(i, &Chunk::offered, false);
      return indices.size() == message.count;
    }
    case LineType::kStay: {
      const auto indices = Indices(message, wanted);
      for (const std::size_t i : indices) LeaveOut(i);
      return indices.size() == message.count;
    }
    case LineType::kSettle:
      answers->push_back(Settle());
      return true;
    case LineType::kFiled:
      answers->push_back(Filed(message));
      return true;
    case LineType::kRead:
      answers->push_back(Read(message, fds));
      return true;
    case LineType::kAdopted:
      return Adopted(message);
    default:
      return false;
  }
}

LineAgent::Answer LineAgent::Offer(std::uint32_t most) {
  Heap::Region& region = heap_.large_;
  Answer answer{.message = {.type = LineType::kOffer}, .fds = {}};
  for (const std::size_t i : Best(most, true, [](const Chunk& chunk) { return chunk.MayGo(); })) {
    int fd = -1;
    if (heap_.driver_.Export(&fd, region.chunks[i].handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
      break;  // out of descriptors, say: fewer go
    Mark(i, &Chunk::offered, true);
    answer.message.chunk[answer.message.count++] = region.AddressOf(i);
    answer.fds.emplace_back(fd);
  }
  return answer;
}

LineAgent::Answer LineAgent::Want(std::uint32_t most) {
  Heap::Region& region = heap_.large_;
  Answer answer{.message = {.type = LineType::kWant}, .fds = {}};
  for (const std::size_t i :
       Best(most, false, [](const Chunk& chunk) { return chunk.InHost() && chunk.known && !chunk.wanted; })) {
    Driver::Handle handle = 0;
    int fd = -1;
    CUresult result = heap_.MakeChunk(region.chunk_bytes, &handle);
    if (result == CUDA_SUCCESS) {
      result = heap_.driver_.Export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
      if (result != CUDA_SUCCESS) heap_.driver_.Release(handle);
    }
    if (result != CUDA_SUCCESS) {  // fewer come
      if (answer.message.count == 0) answer.message.error = result;
      break;
    }
    Mark(i, &Chunk::wanted, true);
    SetComing(i, handle);
    answer.message.chunk[answer.message.count++] = region.AddressOf(i);
    answer.fds.emplace_back(fd);
  }
  return answer;
}

void LineAgent::SetComing(std::size_t index, Driver::Handle handle) {
  Heap::Region& region = heap_.large_;
  Driver::Handle& coming = region.chunks[index].coming;
  heap_.figures_.coming += (handle != 0 ? region.chunk_bytes : 0) - (coming != 0 ? region.chunk_bytes : 0);
  coming = handle;
  heap_.room_.Holds(heap_.figures_);
}

// A copy of the chunk begins or ends.
void LineAgent::Mark(std::size_t index, bool Chunk::* copy, bool under_way) {
  Chunk& chunk = heap_.large_.chunks[index];
  if (chunk.*copy == under_way) return;
  heap_.Uncount(heap_.large_, chunk);
  chunk.*copy = under_way;
  heap_.Count(heap_.large_, chunk);
}

// A chunk that was wanted does not come.
void LineAgent::LeaveOut(std::size_t index) {
  Chunk& chunk = heap_.large_.chunks[index];
  Mark(index, &Chunk::wanted, false);
  if (chunk.coming != 0 && !heap_.stopped_) heap_.driver_.Release(chunk.coming);
  SetComing(index, 0);
  heap_.ReleaseEmpty(heap_.large_, index);
}

LineAgent::Answer LineAgent::Stored(const Message& message, std::span<UniqueFd> fds) {
  Heap::Region& region = heap_.large_;
  Answer answer = AnswerOf(LineType::kFreed, message);
  const auto indices = Indices(message, [](const Chunk& chunk) { return chunk.offered; });
  // The copies are held before anything is given up.
  std::vector<Driver::Handle> stored;
  for (const UniqueFd& fd : fds) {
    Driver::Handle handle = 0;
    answer.message.error = heap_.driver_.Import(&handle, AsHandle(fd.Get()), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (answer.message.error != CUDA_SUCCESS) break;
    stored.push_back(handle);
  }
  if (answer.message.error != CUDA_SUCCESS) {
    for (const std::size_t i : indices) Mark(i, &Chunk::offered, false);
    for (const Driver::Handle handle : stored) heap_.driver_.Release(handle);
    return answer;
  }
  ForRuns(indices, [&](std::size_t first, std::size_t count) {
    heap_.driver_.Unmap(region.AddressOf(first), count * region.chunk_bytes);
  });
  for (std::size_t n = 0; n < indices.size(); ++n) {
    Chunk& chunk = region.chunks[indices[n]];
    heap_.driver_.Release(chunk.handle);
    heap_.Unshare(region, indices[n]);
    heap_.figures_.moved_out += region.chunk_bytes;
    heap_.Set(region, chunk, Backing::kHost, stored[n]);
    Mark(indices[n], &Chunk::offered, false);  // not before: it must not look safe in between
    chunk.known = true;
    chunk.key = message.key[n];
    heap_.ReleaseEmpty(region, indices[n]);  // it may have been freed meanwhile
  }
  return answer;
}

LineAgent::Answer LineAgent::Loaded(const Message& message) {
  Heap::Region& region = heap_.large_;
  Answer answer = AnswerOf(LineType::kTaken, message);
  std::int32_t& error = answer.message.error;
  const auto indices = Indices(message, [](const Chunk& chunk) { return chunk.wanted; });
  std::vector<std::size_t> reached;  // by the program, as they are
  for (const std::size_t i : indices) {
    if (region.chunks[i].backing == Backing::kHostMapped) reached.push_back(i);
  }
  const auto map = [&](std::size_t i) {
    const std::uint64_t address = region.AddressOf(i);
    Chunk& chunk = region.chunks[i];
    if (chunk.backing == Backing::kHostMapped) heap_.driver_.Unmap(address, region.chunk_bytes);
    heap_.Set(region, chunk, Backing::kHost, chunk.handle);
    return heap_.driver_.Map(address, region.chunk_bytes, 0, chunk.coming, 0);
  };
  std::size_t mapped = 0;
  for (; error == CUDA_SUCCESS && mapped < indices.size(); mapped += error == CUDA_SUCCESS ? 1 : 0)
    error = map(indices[mapped]);
  if (error == CUDA_SUCCESS)
    ForRuns(indices, [&](std::size_t first, std::size_t count) {
      if (error == CUDA_SUCCESS) error = heap_.SetAccess(region.AddressOf(first), count * region.chunk_bytes);
    });
  if (error != CUDA_SUCCESS) {  // all of them stay out
    for (std::size_t n = 0; n < mapped; ++n) heap_.driver_.Unmap(region.AddressOf(indices[n]), region.chunk_bytes);
    // The program was settled with those, and may go on without being settled anew.
    for (const std::size_t i : reached) {
      if (region.chunks[i].backing == Backing::kHost) MapHost(i);
    }
    for (const std::size_t i : indices) LeaveOut(i);
    return answer;
  }
  for (const std::size_t i : indices) {
    Chunk& chunk = region.chunks[i];
    heap_.driver_.Release(chunk.handle);
    const Driver::Handle handle = chunk.coming;
    SetComing(i, 0);
    heap_.figures_.moved_in += region.chunk_bytes;
    heap_.Set(region, chunk, Backing::kDevice, handle);
    Mark(i, &Chunk::wanted, false);
    chunk.known = false;
    chunk.key = 0;
  }
  return answer;
}

LineAgent::Answer LineAgent::Settle() {
  Heap::Region& region = heap_.large_;
  Answer answer{.message = {.type = LineType::kSettled}, .fds = {}};
  std::int32_t& error = answer.message.error;
  bool filed = false;
  for (std::size_t i = 0; i < region.chunks.size() && error == CUDA_SUCCESS; ++i) {
    if (region.chunks[i].backing == Backing::kHost) error = MapHost(i);
    filed |= region.chunks[i].backing == Backing::kFile;
  }
  if (error == CUDA_SUCCESS && filed) error = CUDA_ERROR_NOT_READY;
  return answer;
}

// What was freed on the way is none of the named chunks any more, and was said to be dropped before this answer.
LineAgent::Answer LineAgent::Filed(const Message& message) {
  Heap::Region& region = heap_.large_;
  Answer answer{.message = {.type = LineType::kReleased}, .fds = {}};
  std::vector<std::pair<std::uint32_t, std::size_t>> filed;  // which of the message, and of the region
  for (std::uint32_t n = 0; n < message.count; ++n) {
    Message one{.count = 1};
    one.chunk[0] = message.chunk[n];
    const auto index = Indices(
        one, [](const Chunk& chunk) { return chunk.InHost() && chunk.known && !chunk.wanted && !chunk.offered; });
    if (index.empty()) continue;
    Mark(index.front(), &Chunk::offered, true);  // if it is mapped it counted as safe so far
    filed.emplace_back(n, index.front());
  }
  if (heap_.room_.Released()) return answer;
  for (const auto& [n, i] : filed) {
    Chunk& chunk = region.chunks[i];
    if (chunk.backing == Backing::kHostMapped) heap_.driver_.Unmap(message.chunk[n], region.chunk_bytes);
    heap_.driver_.Release(chunk.handle);
    heap_.Set(region, chunk, Backing::kFile, 0);
    Mark(i, &Chunk::offered, false);
    chunk.key = message.key[n];
    answer.message.chunk[answer.message.count++] = message.chunk[n];
  }
  return answer;
}

LineAgent::Answer LineAgent::Read(const Message& message, std::span<UniqueFd> fds) {
  Heap::Region& region = heap_.large_;
  Answer answer{.message = {.type = LineType::kHeld}, .fds = {}};
  for (std::uint32_t n = 0; n < message.count; ++n) {
    Message one{.count = 1};
    one.chunk[0] = message.chunk[n];
    const auto index = Indices(one, [](const Chunk& chunk) { return chunk.backing == Backing::kFile && chunk.known; });
    if (index.empty()) continue;
    Driver::Handle handle = 0;
    const CUresult result =
        heap_.driver_.Import(&handle, AsHandle(fds[n].Get()), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) continue;
    Chunk& chunk = region.chunks[index.front()];
    heap_.Set(region, chunk, Backing::kHost, handle);
    chunk.key = message.key[n];
    answer.message.chunk[answer.message.count++] = message.chunk[n];
  }
  return answer;
}

// Makes a chunk that is in host memory valid.
CUresult LineAgent::MapHost(std::size_t index) {
  Heap::Region& region = heap_.large_;
  Chunk& chunk = region.chunks[index];
  const std::uint64_t address = region.AddressOf(index);
  CUresult result = heap_.driver_.Map(address, region.chunk_bytes, 0, chunk.handle, 0);
  if (result != CUDA_SUCCESS) return result;
  result = heap_.SetAccess(address, region.chunk_bytes);
  if (result == CUDA_SUCCESS) {
    heap_.Set(region, chunk, Backing::kHostMapped, chunk.handle);
  } else {
    heap_.driver_.Unmap(address, region.chunk_bytes);
  }
  return result;
}

void LineAgent::TakeDropped(std::vector<Answer>* answers) {
  std::lock_guard lock(heap_.mutex_);
  TakeDroppedLocked(answers);
}

void LineAgent::TakeDroppedLocked(std::vector<Answer>* answers) {
  for (std::size_t n = 0; n < heap_.dropped_.size(); n += wire::kMostChunks) {
    Answer answer{.message = {.type = LineType::kDropped}, .fds = {}};
    answer.message.count =
        static_cast<std::uint32_t>(std::min<std::size_t>(wire::kMostChunks, heap_.dropped_.size() - n));
    std::copy_n(heap_.dropped_.begin() + static_cast<std::ptrdiff_t>(n), answer.message.count, answer.message.chunk);
    answers->push_back(std::move(answer));
  }
  heap_.dropped_.clear();
}

void LineAgent::Lost() {
  std::lock_guard lock(heap_.mutex_);
  Heap::Region& region = heap_.large_;
  for (std::size_t i = 0; i < region.chunks.size(); ++i) {
    Mark(i, &Chunk::offered, false);
    region.chunks[i].known = region.chunks[i].adopting = false;
    LeaveOut(i);
  }
  heap_.dropped_.clear();
}

void LineAgent::Adopt(std::vector<Answer>* answers) {
  std::lock_guard lock(heap_.mutex_);
  Heap::Region& region = heap_.large_;
  const auto name = [&](LineType type, auto is) {
    Answer answer{.message = {.type = type}, .fds = {}};
    for (std::size_t i = 0; i < region.chunks.size(); ++i) {
      Chunk& chunk = region.chunks[i];
      if (chunk.key == 0 || chunk.known || chunk.adopting || !is(chunk)) continue;
      // What is in no file is lost, and to be said so; what is in no slot stays where it is.
      (type == LineType::kAdopt ? chunk.adopting : chunk.known) = true;
      answer.message.chunk[answer.message.count] = region.AddressOf(i);
      answer.message.key[answer.message.count++] = chunk.key;
      if (answer.message.count == wire::kMostChunks)
        answers->push_back(std::exchange(answer, {.message = {.type = type}, .fds = {}}));
    }
    if (answer.message.count > 0 || type == LineType::kAdopt) answers->push_back(std::move(answer));
  };
  name(LineType::kAdopt, [](const Chunk& chunk) { return chunk.InHost(); });
  name(LineType::kAdoptFiled, [](const Chunk& chunk) { return chunk.backing == Backing::kFile; });
}

// What was freed since it was named the mover has to hear now: it was not known then.
bool LineAgent::Adopted(const Message& message) {
  const auto indices = Indices(message, [](const Chunk& chunk) { return chunk.adopting; });
  if (indices.empty() || indices.size() != message.count) return false;
  for (std::size_t n = 0; n < indices.size(); ++n) {
    Chunk& chunk = heap_.large_.chunks[indices[n]];
    chunk.adopting = false;
    const bool here = message.key[n] != 0;
    if (chunk.InHost()) {
      chunk.known = here;
      if (!here) chunk.key = 0;
    } else if (here) {
      heap_.dropped_.push_back(message.chunk[n]);
    }
  }
  return true;
}

}  // namespace tessera::pager
