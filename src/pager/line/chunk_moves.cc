#include "pager/line/chunk_moves.h"

#include <algorithm>
#include <utility>

namespace tessera::pager {

using namespace cuda;
using wire::kChunkBytes;
using wire::LineType;

namespace {

// The runs of neighbours among chunks. One call of the driver's for a run is quicker than one for each chunk.
std::vector<ChunkSpan> RunsOf(std::vector<std::size_t> indices) {
  std::sort(indices.begin(), indices.end());
  std::vector<ChunkSpan> runs;
  for (const std::size_t i : indices) {
    if (runs.empty() || runs.back().last != i) runs.push_back({i, i});
    ++runs.back().last;
  }
  return runs;
}

LineAnswer AnswerTo(const wire::LineMessage& question, LineType type) {
  LineAnswer answer{.message = {.type = type, .count = question.count}, .fds = {}};
  std::copy_n(question.chunk, question.count, answer.message.chunk);
  return answer;
}

}  // namespace

// The best `most` chunks that `may` be taken, coldest or hottest first.
template <typename May>
ChunkMoves::Indices ChunkMoves::Best(std::uint32_t most, bool coldest, Nanos now, May may) const {
  const Region& region = chunks.large();
  Indices best;
  for (std::size_t i = 0; i < region.size(); ++i) {
    if (may(region[i])) best.push_back(i);
  }
  const std::vector<Heat> heats = heat_.Heats(chunks, now);
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

void ChunkMoves::MarkOffered(std::size_t index, bool offered) {
  Chunk chunk = chunks.large()[index];
  if (std::exchange(chunk.offered, offered) != offered) chunks.Put(chunks.large(), index, chunk);
}

// ---- out ----

LineAnswer ChunkMoves::Offer(std::uint32_t most, Nanos now) {
  const Region& region = chunks.large();
  LineAnswer answer{.message = {.type = LineType::kOffer}, .fds = {}};
  for (const std::size_t i : Best(most, true, now, [](const Chunk& chunk) { return chunk.MayGo(); })) {
    int fd = -1;
    if (chunks.memory().Export(region[i].handle, &fd) != CUDA_SUCCESS) break;  // out of descriptors, say: fewer go
    MarkOffered(i, true);
    answer.message.chunk[answer.message.count++] = region.range.AddressOf(i);
    answer.fds.emplace_back(fd);
  }
  return answer;
}

void ChunkMoves::Keep(const Indices& indices) {
  for (const std::size_t i : indices) MarkOffered(i, false);
}

LineAnswer ChunkMoves::Store(const Message& stored, const Indices& indices, std::span<UniqueFd> fds) {
  Region& region = chunks.large();
  const ChunkMemory& memory = chunks.memory();
  LineAnswer answer = AnswerTo(stored, LineType::kFreed);
  // The copies are held before anything is given up.
  std::vector<Driver::Handle> copies;
  for (const UniqueFd& fd : fds) {
    Driver::Handle handle = 0;
    answer.message.error = memory.Import(fd.Get(), &handle);
    if (answer.message.error != CUDA_SUCCESS) break;
    copies.push_back(handle);
  }
  if (answer.message.error != CUDA_SUCCESS) {
    Keep(indices);
    for (const Driver::Handle handle : copies) memory.Release(handle);
    return answer;
  }
  for (const ChunkSpan& run : RunsOf(indices))
    memory.Unmap(region.range.AddressOf(run.first), (run.last - run.first) * kChunkBytes);
  for (std::size_t n = 0; n < indices.size(); ++n) {
    Chunk chunk = region[indices[n]];
    memory.Release(chunk.handle);
    chunk.backing = Backing::kHost;
    chunk.handle = copies[n];
    chunk.key = stored.key[n];
    chunk.known = true;
    chunk.shared = false;
    chunk.offered = false;
    chunks.Put(region, indices[n], chunk);
    chunks.UnbackIfUnused(region, indices[n]);  // it may have been freed meanwhile
  }
  return answer;
}

// ---- in ----

LineAnswer ChunkMoves::Want(std::uint32_t most, Nanos now) {
  Region& region = chunks.large();
  const ChunkMemory& memory = chunks.memory();
  LineAnswer answer{.message = {.type = LineType::kWant}, .fds = {}};
  const auto may = [](const Chunk& chunk) { return chunk.InHost() && chunk.known && !chunk.wanted; };
  for (const std::size_t i : Best(most, false, now, may)) {
    Chunk chunk = region[i];
    int fd = -1;
    CUresult result = memory.Make(kChunkBytes, &chunk.coming);
    if (result == CUDA_SUCCESS) {
      result = memory.Export(chunk.coming, &fd);
      if (result != CUDA_SUCCESS) memory.Release(chunk.coming);
    }
    if (result != CUDA_SUCCESS) {  // fewer come
      if (answer.message.count == 0) answer.message.error = result;
      break;
    }
    chunk.wanted = true;
    chunks.Put(region, i, chunk);
    answer.message.chunk[answer.message.count++] = region.range.AddressOf(i);
    answer.fds.emplace_back(fd);
  }
  return answer;
}

void ChunkMoves::LeaveOut(const Indices& indices) {
  for (const std::size_t i : indices) LeaveOut(i);
}

void ChunkMoves::LeaveOut(std::size_t index) {
  Region& region = chunks.large();
  Chunk chunk = region[index];
  if (chunk.coming != 0) chunks.memory().Release(chunk.coming);
  chunk.coming = 0;
  chunk.wanted = false;
  chunks.Put(region, index, chunk);
  chunks.UnbackIfUnused(region, index);
}

// Maps the GPU memory that a chunk was copied into, without access yet.
CUresult ChunkMoves::MapComing(std::size_t index) {
  Region& region = chunks.large();
  Chunk chunk = region[index];
  const std::uint64_t address = region.range.AddressOf(index);
  if (chunk.backing == Backing::kHostMapped) {
    chunks.memory().Unmap(address, kChunkBytes);
    chunk.backing = Backing::kHost;
    chunks.Put(region, index, chunk);
  }
  return chunks.memory().Map(address, kChunkBytes, chunk.coming);
}

LineAnswer ChunkMoves::Load(const Message& loaded, const Indices& indices) {
  Region& region = chunks.large();
  const ChunkMemory& memory = chunks.memory();
  LineAnswer answer = AnswerTo(loaded, LineType::kTaken);
  std::int32_t& error = answer.message.error;
  Indices reached;  // by the program, in host memory
  for (const std::size_t i : indices) {
    if (region[i].backing == Backing::kHostMapped) reached.push_back(i);
  }
  Indices mapped;
  for (const std::size_t i : indices) {
    error = MapComing(i);
    if (error != CUDA_SUCCESS) break;
    mapped.push_back(i);
  }
  for (const ChunkSpan& run : RunsOf(indices)) {
    if (error == CUDA_SUCCESS)
      error = memory.GiveAccess(region.range.AddressOf(run.first), (run.last - run.first) * kChunkBytes);
  }
  if (error != CUDA_SUCCESS) {  // all of them stay out
    for (const std::size_t i : mapped) memory.Unmap(region.range.AddressOf(i), kChunkBytes);
    // The program was settled with those, and may go on without being settled again.
    for (const std::size_t i : reached) {
      if (region[i].backing == Backing::kHost) MapHost(i);
    }
    LeaveOut(indices);
    return answer;
  }
  for (const std::size_t i : indices) {
    Chunk chunk = region[i];
    memory.Release(chunk.handle);
    chunk.backing = Backing::kDevice;
    chunk.handle = std::exchange(chunk.coming, 0);
    chunk.wanted = false;
    chunk.known = false;
    chunk.key = 0;
    chunks.Put(region, i, chunk);
  }
  return answer;
}

// ---- in host memory ----

LineAnswer ChunkMoves::Settle() {
  const Region& region = chunks.large();
  LineAnswer answer{.message = {.type = LineType::kSettled}, .fds = {}};
  std::int32_t& error = answer.message.error;
  bool filed = false;
  for (std::size_t i = 0; i < region.size() && error == CUDA_SUCCESS; ++i) {
    if (region[i].backing == Backing::kHost) error = MapHost(i);
    filed |= region[i].backing == Backing::kFile;
  }
  if (error == CUDA_SUCCESS && filed) error = CUDA_ERROR_NOT_READY;
  return answer;
}

// Maps a chunk that is in host memory.
CUresult ChunkMoves::MapHost(std::size_t index) {
  Region& region = chunks.large();
  Chunk chunk = region[index];
  const std::uint64_t address = region.range.AddressOf(index);
  CUresult result = chunks.memory().Map(address, kChunkBytes, chunk.handle);
  if (result != CUDA_SUCCESS) return result;
  result = chunks.memory().GiveAccess(address, kChunkBytes);
  if (result == CUDA_SUCCESS) {
    chunk.backing = Backing::kHostMapped;
    chunks.Put(region, index, chunk);
  } else {
    chunks.memory().Unmap(address, kChunkBytes);
  }
  return result;
}

// ---- the file ----

// A chunk that was freed meanwhile is not in host memory any more; the mover was told that it is dropped before.
LineAnswer ChunkMoves::Release(const Message& filed) {
  Region& region = chunks.large();
  LineAnswer answer{.message = {.type = LineType::kReleased}, .fds = {}};
  std::vector<std::pair<std::uint32_t, std::size_t>> released;  // which of the message, and of the region
  for (std::uint32_t n = 0; n < filed.count; ++n) {
    const auto index = region.IndexAt(filed.chunk[n]);
    if (!index) continue;
    const Chunk& chunk = region[*index];
    if (!chunk.InHost() || !chunk.known || chunk.wanted || chunk.offered) continue;
    MarkOffered(*index, true);  // a mapped one counted as safe so far
    released.emplace_back(n, *index);
  }
  if (chunks.room().Released()) return answer;
  for (const auto& [n, i] : released) {
    Chunk chunk = region[i];
    if (chunk.backing == Backing::kHostMapped) chunks.memory().Unmap(filed.chunk[n], kChunkBytes);
    chunks.memory().Release(chunk.handle);
    chunk.backing = Backing::kFile;
    chunk.handle = 0;
    chunk.key = filed.key[n];
    chunk.offered = false;
    chunks.Put(region, i, chunk);
    answer.message.chunk[answer.message.count++] = filed.chunk[n];
  }
  return answer;
}

LineAnswer ChunkMoves::Hold(const Message& read, std::span<UniqueFd> fds) {
  Region& region = chunks.large();
  LineAnswer answer{.message = {.type = LineType::kHeld}, .fds = {}};
  for (std::uint32_t n = 0; n < read.count; ++n) {
    const auto index = region.IndexAt(read.chunk[n]);
    if (!index) continue;
    Chunk chunk = region[*index];
    if (chunk.backing != Backing::kFile || !chunk.known) continue;
    if (chunks.memory().Import(fds[n].Get(), &chunk.handle) != CUDA_SUCCESS) continue;
    chunk.backing = Backing::kHost;
    chunk.key = read.key[n];
    chunks.Put(region, *index, chunk);
    answer.message.chunk[answer.message.count++] = read.chunk[n];
  }
  return answer;
}

void ChunkMoves::Abandon() {
  Region& region = chunks.large();
  for (std::size_t i = 0; i < region.size(); ++i) {
    Chunk chunk = region[i];
    chunk.offered = chunk.known = chunk.adopting = false;
    chunks.Put(region, i, chunk);
    LeaveOut(i);
  }
}

}  // namespace tessera::pager
