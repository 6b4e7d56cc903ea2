#include "pager/heap/block_pins.h"

#include <bit>
#include <utility>

#include "base/uncancelled.h"

namespace tessera::pager {

using namespace cuda;

namespace {

// A chunk that was offered before it was pinned may still go.
bool IsHere(const Chunk& chunk) { return chunk.backing == Backing::kDevice && !chunk.offered; }

}  // namespace

void BlockPins::AddPins(ChunkTable& chunks, const Block& block, int count) {
  Region& region = chunks.RegionOf(block.begin);
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Chunk chunk = region[i];
    chunk.pins += static_cast<std::uint32_t>(count);
    if (block.in_device) chunk.devices += static_cast<std::uint32_t>(count);
    chunks.Put(region, i, chunk);
  }
}

// Whether some of the block can never come back to the GPU.
bool BlockPins::IsStranded(const Block& block) const {
  const Region& region = chunks_.RegionOf(block.begin);
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  bool stranded = false;
  for (std::size_t i = span.first; i < span.last; ++i) stranded |= region[i].Stranded();
  return stranded;
}

// Whether all of the block is on the GPU, and stays there.
bool BlockPins::PinBlock(Block& block) {
  if (!std::exchange(block.exported, true)) AddPins(chunks_, block, 1);
  const Region& region = chunks_.RegionOf(block.begin);
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  bool here = true;
  for (std::size_t i = span.first; i < span.last; ++i) here &= IsHere(region[i]);
  return here;
}

// What the block lies in: whole chunks, and pieces of sparse ones.
std::vector<BlockPins::Piece> BlockPins::PiecesOf(const Block& block) const {
  const Region& region = chunks_.RegionOf(block.begin);
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  std::vector<Piece> pieces;
  for (std::size_t i = span.first; i < span.last; ++i) {
    const std::uint64_t address = region.range.AddressOf(i);
    if (!region[i].sparse) {
      pieces.push_back({i, region[i].units, address});
      continue;
    }
    const SparseMemory& sparse = *region[i].sparse;
    const Units around = sparse.PiecesAround(region.range.UnitsIn(i, block.begin, block.bytes));
    for (Units left = around & sparse.begins(); left != 0; left &= left - 1)
      pieces.push_back({i, left & -left, address + std::countr_zero(left) * wire::kUnitBytes});
  }
  return pieces;
}

// `devices`: blocks of the chunk that a device has from now on.
void BlockPins::MarkShared(Region& region, std::size_t index, std::uint32_t devices) {
  Chunk chunk = region[index];
  chunk.shared = true;
  chunk.devices += devices;
  chunks_.Put(region, index, chunk);
}

CUresult BlockPins::Pin(CUdeviceptr address, Exported* exported) {
  const UncancelledLock lock(chunks_.mutex());
  Block* block = chunks_.blocks().Around(address);
  if (chunks_.memory().stopped() || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *exported = {.block = *block};
  if (IsStranded(*block)) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool here = PinBlock(*block);
  exported->block = *block;
  if (!here) return CUDA_ERROR_NOT_READY;
  const std::vector<Piece> pieces = PiecesOf(*block);
  exported->chunk_bytes = chunks_.RegionOf(block->begin).range.chunk_bytes;
  exported->offset = block->begin - pieces.front().begin;
  exported->chunks = static_cast<std::uint32_t>(pieces.size());
  return CUDA_SUCCESS;
}

CUresult BlockPins::PinForDevice(CUdeviceptr address, std::uint64_t bytes) {
  const UncancelledLock lock(chunks_.mutex());
  const auto [first, last] = chunks_.blocks().Within(address, bytes);
  if (chunks_.memory().stopped() || address + bytes <= address || first == last) return CUDA_ERROR_INVALID_VALUE;
  for (auto at = first; at != last; ++at) {
    if (IsStranded(at->second)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  bool here = true;
  for (auto at = first; at != last; ++at) here &= PinBlock(at->second);
  if (!here) return CUDA_ERROR_NOT_READY;
  for (auto at = first; at != last; ++at) {
    const bool is_new = !std::exchange(at->second.in_device, true);
    Region& region = chunks_.RegionOf(at->first);
    const ChunkSpan span = region.SpanOf(at->first, at->second.bytes);
    for (std::size_t i = span.first; i < span.last; ++i) MarkShared(region, i, is_new ? 1 : 0);
  }
  return CUDA_SUCCESS;
}

std::vector<Block> BlockPins::Within(CUdeviceptr address, std::uint64_t bytes) const {
  const UncancelledLock lock(chunks_.mutex());
  std::vector<Block> blocks;
  const auto [first, last] = chunks_.blocks().Within(address, bytes);
  for (auto at = first; at != last; ++at) blocks.push_back(at->second);
  return blocks;
}

void BlockPins::Unpin(const Block& block) {
  const UncancelledLock lock(chunks_.mutex());
  Block* now = chunks_.blocks().At(block.begin, block.id);
  if (now == nullptr || now->in_device || !std::exchange(now->exported, false)) return;
  AddPins(chunks_, *now, -1);
}

CUresult BlockPins::Share(const Exported& exported, std::uint32_t first, std::span<int> fds) {
  const UncancelledLock lock(chunks_.mutex());
  const Block* block = chunks_.blocks().At(exported.block.begin, exported.block.id);
  if (chunks_.memory().stopped() || block == nullptr || !block->exported) return CUDA_ERROR_INVALID_VALUE;
  Region& region = chunks_.RegionOf(block->begin);
  const std::vector<Piece> all = PiecesOf(*block);
  if (all.size() != exported.chunks) return CUDA_ERROR_NOT_READY;  // it was on its way when it was pinned
  if (first > exported.chunks || fds.size() > exported.chunks - first) return CUDA_ERROR_INVALID_VALUE;
  const std::span pieces = std::span(all).subspan(first, fds.size());
  std::vector<UniqueFd> made;
  for (const Piece& piece : pieces) {
    const Chunk& chunk = region[piece.index];
    CUresult result = IsHere(chunk) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    int fd = -1;
    if (result == CUDA_SUCCESS && chunk.sparse) {
      result = chunk.sparse->Export(chunks_.memory(), piece.units, &made);
    } else if (result == CUDA_SUCCESS) {
      result = chunks_.memory().Export(chunk.handle, &fd);
      if (result == CUDA_SUCCESS) made.emplace_back(fd);
    }
    if (result != CUDA_SUCCESS) return result;
  }
  for (std::size_t n = 0; n < fds.size(); ++n) fds[n] = made[n].Release();
  for (const Piece& piece : pieces) MarkShared(region, piece.index);
  return CUDA_SUCCESS;
}

}  // namespace tessera::pager
