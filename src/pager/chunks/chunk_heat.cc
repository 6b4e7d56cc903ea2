#include "pager/chunks/chunk_heat.h"

#include <algorithm>
#include <functional>

#include "base/uncancelled.h"

namespace tessera::pager {

using namespace cuda;

ChunkHeat::ChunkHeat(const ChunkTable& chunks)
    : chunks_(chunks), uses_(new UseHistory[chunks.large_range.bytes / chunks.large_range.chunk_bytes]) {}

void ChunkHeat::Touch(CUdeviceptr address, Nanos when) {
  if (!chunks_.large_range.Has(address)) return;
  named_.Note(when);
  NoteAllocation(address, when);
}

void ChunkHeat::NoteAllocation(CUdeviceptr address, Nanos when) {
  const ChunkRange& range = chunks_.large_range;
  if (range.Has(address)) uses_[range.IndexOf(address)].Note(when);
}

void ChunkHeat::NoteSubmission(bool named, Nanos when) {
  if (!named) unnamed_.Note(when);
  submitted_.store(when, std::memory_order_relaxed);
}

std::vector<Heat> ChunkHeat::Heats(const ChunkTable& chunks, Nanos now) const {
  const Region& region = chunks.large();
  std::vector<Heat> heats(region.size());
  const Heat unnamed = unnamed_.At(now).Behind();
  Heat behind;
  std::uint64_t end = 0;  // of the block before, if the program mapped that
  for (const auto& [begin, block] : chunks.blocks()) {
    if (!region.range.Has(begin)) continue;
    const ChunkSpan span = region.SpanOf(begin, block.bytes);
    // A submission that names the beginning means the whole block; and what the program has mapped side by side.
    const Heat named = std::max(uses_[span.first].At(now), unnamed);
    behind = begin == end ? std::max(named, behind) : named;
    end = block.reserved ? begin + block.bytes : 0;
    for (std::size_t i = span.first; i < span.last; ++i) {
      const Heat own = uses_[i].At(now);
      heats[i] = std::max({heats[i], own, behind});
      behind = std::max(behind, own.Behind());
    }
  }
  for (const std::size_t i : region.WithMemory()) {
    if (region[i].pins > 0) heats[i] = {UINT32_MAX, UINT32_MAX};
  }
  return heats;
}

ChunkHeat::InUse ChunkHeat::UsedLately() const {
  const Nanos then = submitted_.load(std::memory_order_relaxed);
  const UncancelledLock lock(chunks_.mutex());
  const Region& region = chunks_.large();
  const std::vector<Heat> heats = Heats(chunks_, then);
  const bool named = then != 0 && named_.At(then).use > 0;
  InUse used;
  for (const std::size_t i : region.WithMemory()) {
    const Chunk& chunk = region[i];
    if (chunk.blocks == 0 || (named && heats[i].use == 0)) continue;
    used.all += wire::BytesOf(chunk.live);
    if (chunk.backing != Backing::kDevice) used.out += wire::BytesOf(chunk.live);
  }
  return used;
}

std::uint64_t ChunkHeat::HotOut(Nanos now) const {
  const UncancelledLock lock(chunks_.mutex());
  const Region& region = chunks_.large();
  const std::vector<Heat> heats = Heats(chunks_, now);
  std::vector<Heat> out, in;
  for (const std::size_t i : region.WithMemory()) {
    const Chunk& chunk = region[i];
    if (chunk.blocks == 0) continue;
    // Only a mover that knows the chunk can bring it back.
    if (chunk.InHost() && chunk.known && chunk.pins == 0) out.push_back(heats[i]);
    if (chunk.MayGo()) in.push_back(heats[i]);
  }
  std::ranges::sort(out, std::greater());
  std::ranges::sort(in);
  std::size_t pairs = 0;
  while (pairs < std::min(out.size(), in.size()) && WorthExchanging(out[pairs], in[pairs])) ++pairs;
  return pairs * region.range.chunk_bytes;
}

}  // namespace tessera::pager
