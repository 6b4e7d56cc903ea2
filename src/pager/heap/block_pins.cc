#include "pager/heap/block_pins.h"

#include <unistd.h>

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

// Whether all of the block is on the GPU, and stays there.
bool BlockPins::PinBlock(Block& block) {
  if (!std::exchange(block.exported, true)) AddPins(chunks_, block, 1);
  const Region& region = chunks_.RegionOf(block.begin);
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  bool here = true;
  for (std::size_t i = span.first; i < span.last; ++i) here &= IsHere(region[i]);
  return here;
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
  const bool here = PinBlock(*block);
  const Region& region = chunks_.RegionOf(block->begin);
  const ChunkSpan span = region.SpanOf(block->begin, block->bytes);
  *exported = {.block = *block,
               .chunk_bytes = region.range.chunk_bytes,
               .offset = block->begin - region.range.AddressOf(span.first),
               .chunks = static_cast<std::uint32_t>(span.last - span.first)};
  return here ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult BlockPins::PinForDevice(CUdeviceptr address, std::uint64_t bytes) {
  const UncancelledLock lock(chunks_.mutex());
  const auto [first, last] = chunks_.blocks().Within(address, bytes);
  if (chunks_.memory().stopped() || address + bytes <= address || first == last) return CUDA_ERROR_INVALID_VALUE;
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
  if (first > exported.chunks || fds.size() > exported.chunks - first) return CUDA_ERROR_INVALID_VALUE;
  Region& region = chunks_.RegionOf(block->begin);
  const std::size_t begin = region.range.IndexOf(block->begin) + first;
  for (std::size_t n = 0; n < fds.size(); ++n) {
    const Chunk& chunk = region[begin + n];
    CUresult result = IsHere(chunk) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS) result = chunks_.memory().Export(chunk.handle, &fds[n]);
    if (result == CUDA_SUCCESS) continue;
    for (const int fd : fds.first(n)) close(fd);
    return result;
  }
  for (std::size_t n = 0; n < fds.size(); ++n) MarkShared(region, begin + n);
  return CUDA_SUCCESS;
}

}  // namespace tessera::pager
