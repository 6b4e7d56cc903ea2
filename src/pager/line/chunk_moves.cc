#include "pager/line/chunk_moves.h"

#include <algorithm>
#include <utility>

#include "base/seqpacket.h"

namespace tessera::pager {

using namespace cuda;
using wire::kChunkBytes;
using wire::LineType;

namespace {

LineAnswer AnswerTo(const wire::LineMessage& question, LineType type) {
  LineAnswer answer{.message = {.type = type, .count = question.count}, .fds = {}};
  std::copy_n(question.chunk, question.count, answer.message.chunk);
  return answer;
}

}  // namespace

void ChunkMoves::MarkOffered(std::size_t index, bool offered) {
  Chunk chunk = chunks.large()[index];
  if (std::exchange(chunk.offered, offered) == offered) return;
  if (!offered) chunk.squeezed = chunk.squeezed && chunk.backing != Backing::kDevice;
  chunks.Put(chunks.large(), index, chunk);
}

// Names a chunk whose GPU memory goes along, in pieces or in one; neither: it was shown.
bool ChunkMoves::Name(LineAnswer& answer, std::size_t index, Units units, Driver::Handle whole,
                      const SparseMemory* sparse) const {
  const std::uint32_t n = answer.message.count;
  if (sparse != nullptr) {
    if (sparse->Export(chunks.memory(), units, &answer.fds) != CUDA_SUCCESS) return false;
  } else if (whole != 0) {
    int fd = -1;
    if (chunks.memory().Export(whole, &fd) != CUDA_SUCCESS) return false;
    answer.fds.emplace_back(fd);
  }
  answer.message.key[n] = sparse == nullptr && whole == 0 ? wire::kAsShown : 0;
  answer.message.units[n] = units;
  answer.message.begins[n] = sparse != nullptr ? sparse->begins() : 0;
  answer.message.chunk[n] = chunks.large().range.AddressOf(index);
  ++answer.message.count;
  return true;
}

// ---- out ----

LineAnswer ChunkMoves::Offer(std::uint32_t most, std::uint32_t round, Nanos now) {
  return OfferThese(choice_.Coldest(chunks, std::min(most, wire::kMostChunks), now), false, round);
}

LineAnswer ChunkMoves::OfferHoles(std::uint32_t most) {
  return OfferThese(ChunkChoice::MostHoles(chunks, std::min(most, wire::kMostChunks)), true, 0);
}

// Of a sparse chunk all memory goes along, with the few holes that it may have.
LineAnswer ChunkMoves::OfferThese(const Indices& indices, bool for_holes, std::uint32_t round) {
  Region& region = chunks.large();
  LineAnswer answer{.message = {.type = LineType::kOffer}, .fds = {}};
  for (const std::size_t i : indices) {
    Chunk chunk = region[i];
    chunk.moving = chunk.sparse ? chunk.units : chunk.live;
    const std::size_t pieces = chunk.sparse ? wire::CountOf(chunk.sparse->begins()) : 1;
    if (answer.fds.size() + pieces > kMostDescriptors) break;
    // Out of descriptors, say: fewer go.
    const bool shown = round != 0 && chunk.shown == round;  // the mover has its memory
    if (!Name(answer, i, chunk.moving, shown ? 0 : chunk.handle, chunk.sparse.Get())) break;
    chunk.offered = true;
    chunk.squeezed = for_holes;
    chunks.Put(region, i, chunk);
  }
  return answer;
}

LineAnswer ChunkMoves::Show(std::uint32_t most, std::uint32_t round) {
  Region& region = chunks.large();
  LineAnswer answer{.message = {.type = LineType::kShown}, .fds = {}};
  for (const std::size_t i : region.WithMemory()) {
    if (answer.message.count == std::min(most, wire::kMostChunks)) break;
    Chunk chunk = region[i];
    if (!chunk.MayGo() || chunk.sparse || chunk.shown == round) continue;
    if (!Name(answer, i, chunk.live, chunk.handle, nullptr)) break;
    chunk.shown = round;
    chunks.Put(region, i, chunk);
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
  const bool away = stored.type == LineType::kStoredAway;
  // The copies are held before anything is given up, if not by the mover alone.
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
  UnmapDevice(indices);
  for (std::size_t n = 0; n < indices.size(); ++n) {
    Chunk chunk = region[indices[n]];
    if (chunk.sparse) {
      chunk.sparse->Release(memory, chunk.units);
      chunk.sparse = {};
    } else {
      memory.Release(chunk.handle);
    }
    chunk.backing = away ? Backing::kAway : Backing::kHost;
    chunk.handle = away ? 0 : copies[n];
    chunk.key = stored.key[n];
    chunk.known = true;
    chunk.in_slot = away;
    chunk.shared = false;
    chunk.offered = false;
    chunk.units = std::exchange(chunk.moving, 0);
    chunks.Put(region, indices[n], chunk);
    chunks.UnbackIfUnused(region, indices[n]);  // it may have been freed meanwhile
  }
  return answer;
}

// ---- in ----

LineAnswer ChunkMoves::Want(std::uint32_t most, std::uint32_t room, std::uint32_t holes, Nanos now) {
  Region& region = chunks.large();
  LineAnswer answer{.message = {.type = LineType::kWant}, .fds = {}};
  const Indices hottest = choice_.Hottest(chunks, now);
  const std::set<std::size_t> come_whole = ChunkChoice::Whole(chunks, hottest, holes);
  for (const std::size_t i : hottest) {
    if (answer.message.count == std::min(most, wire::kMostChunks)) break;
    const Units live = region[i].live;
    const bool whole = come_whole.contains(i);
    const std::uint32_t taken = whole ? wire::kUnitsPerChunk : wire::CountOf(live);
    const std::size_t pieces = whole ? 1 : wire::CountOf(wire::BeginsOfRuns(live) | region[i].cuts);
    if (taken > room || answer.fds.size() + pieces > kMostDescriptors) continue;
    const CUresult result = MakeComing(answer, i, whole);
    if (result != CUDA_SUCCESS) {  // fewer come
      if (answer.message.count == 0) answer.message.error = result;
      break;
    }
    room -= taken;
  }
  return answer;
}

// Makes GPU memory for a chunk, and names it: in one piece, or for the units in which blocks lie. From now on no block
// comes to others.
CUresult ChunkMoves::MakeComing(LineAnswer& answer, std::size_t index, bool whole) {
  const ChunkMemory& memory = chunks.memory();
  Chunk chunk = chunks.large()[index];
  CUresult result = CUDA_SUCCESS;
  if (whole) {
    result = memory.Make(kChunkBytes, &chunk.coming);
  } else {
    chunk.coming_sparse = SparsePointer::Make();
    result = chunk.coming_sparse->Make(memory, chunk.live, chunk.cuts);
  }
  if (result != CUDA_SUCCESS) return result;
  if (!Name(answer, index, chunk.live, chunk.coming, chunk.coming_sparse.Get())) {
    DropComing(chunk);
    return CUDA_ERROR_UNKNOWN;
  }
  chunk.wanted = true;
  chunk.units = chunk.moving = chunk.live;
  chunks.Put(chunks.large(), index, chunk);
  return CUDA_SUCCESS;
}

void ChunkMoves::DropComing(Chunk& chunk) const {
  if (chunk.coming != 0) chunks.memory().Release(chunk.coming);
  if (chunk.coming_sparse) chunk.coming_sparse->Release(chunks.memory(), chunk.coming_sparse->units());
  chunk.coming = 0;
  chunk.coming_sparse = {};
  chunk.moving = 0;
}

void ChunkMoves::LeaveOut(const Indices& indices) {
  for (const std::size_t i : indices) LeaveOut(i);
}

void ChunkMoves::LeaveOut(std::size_t index) {
  Region& region = chunks.large();
  Chunk chunk = region[index];
  DropComing(chunk);
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
  if (chunk.coming_sparse) return chunk.coming_sparse->Map(chunks.memory(), address, chunk.moving);
  return chunks.memory().Map(address, kChunkBytes, chunk.coming);
}

// Takes what chunks have on the GPU out of their addresses. Neighbours are one call.
void ChunkMoves::UnmapDevice(Indices indices) const {
  const Region& region = chunks.large();
  std::ranges::sort(indices);
  for (std::size_t n = 0; n < indices.size();) {
    std::size_t end = n;
    while (end < indices.size() && indices[end] == indices[n] + (end - n) && !region[indices[end]].sparse) ++end;
    if (end > n) chunks.memory().Unmap(region.range.AddressOf(indices[n]), (end - n) * kChunkBytes);
    for (n = end; n < indices.size() && region[indices[n]].sparse; ++n)
      chunks.memory().UnmapUnits(region.range.AddressOf(indices[n]), region[indices[n]].units);
  }
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
  std::vector<ChunkTable::Reached> units;
  for (const std::size_t i : mapped) units.push_back({i, region[i].Coming()});
  if (error == CUDA_SUCCESS) error = chunks.GiveAccess(region, units);
  if (error != CUDA_SUCCESS) {  // all of them stay out
    for (const std::size_t i : mapped) memory.UnmapUnits(region.range.AddressOf(i), region[i].Coming());
    // The program was settled with those, and may go on without being settled again.
    for (const std::size_t i : reached) {
      if (region[i].backing == Backing::kHost) MapHost(i);
    }
    LeaveOut(indices);
    return answer;
  }
  for (const std::size_t i : indices) {
    Chunk chunk = region[i];
    if (chunk.InHost()) memory.Release(chunk.handle);
    chunk.backing = Backing::kDevice;
    chunk.units = chunk.Coming();
    chunk.handle = std::exchange(chunk.coming, 0);
    chunk.sparse = std::move(chunk.coming_sparse);
    chunk.moving = 0;
    chunk.squeezed = false;
    chunk.wanted = false;
    chunk.known = chunk.in_slot = false;
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
  bool away = false;
  for (const std::size_t i : region.WithMemory()) {
    if (error != CUDA_SUCCESS) break;
    if (region[i].backing == Backing::kHost) error = MapHost(i);
    away |= region[i].backing == Backing::kAway;
  }
  if (error == CUDA_SUCCESS && away) error = CUDA_ERROR_NOT_READY;
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

// ---- away ----

// A chunk stays in its slot if its key stays the same. The program may have freed one meanwhile: it is not in host
// memory then, and the mover heard of that before.
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
    chunk.backing = Backing::kAway;
    chunk.handle = 0;
    chunk.in_slot = chunk.key == filed.key[n];
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
  const bool away = read.type == LineType::kReadAway;
  for (std::uint32_t n = 0; n < read.count; ++n) {
    const auto index = region.IndexAt(read.chunk[n]);
    if (!index) continue;
    Chunk chunk = region[*index];
    if (chunk.backing != Backing::kAway || !chunk.known || chunk.wanted) continue;
    if (away) {
      chunk.in_slot = true;
    } else {
      const CUresult imported = chunks.memory().Import(fds[n].Get(), &chunk.handle);
      if (imported != CUDA_SUCCESS) {
        answer.message.error = imported;
        continue;
      }
      chunk.backing = Backing::kHost;
      chunk.in_slot = false;
    }
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
    chunk.offered = chunk.known = chunk.adopting = chunk.squeezed = false;
    chunk.shown = 0;
    chunks.Put(region, i, chunk);
    LeaveOut(i);
  }
}

}  // namespace tessera::pager
