// Which of the heap's memory is used, and what of it should rather be where.
#include <algorithm>
#include <functional>

#include "pager/heap.h"

namespace tessera::pager {

using namespace cuda;

void Heap::Touch(CUdeviceptr address, Nanos when) {
  if (large_.Has(address)) uses_[large_.IndexOf(address)].Note(when);
}

std::vector<Heat> Heap::Heats(Nanos now) const {
  std::vector<Heat> heats(large_.chunks.size());
  for (const auto& [begin, block] : blocks_) {
    if (!large_.Has(begin)) continue;
    const std::size_t first = large_.IndexOf(begin), last = large_.IndexOf(begin + block.bytes - 1);
    // What chunks have that lie behind those that were named so far. Who names the beginning means the whole block.
    Heat behind = uses_[first].At(now);
    for (std::size_t i = first; i <= last; ++i) {
      const Heat own = uses_[i].At(now);
      heats[i] = std::max({heats[i], own, behind});
      behind = std::max(behind, own.Behind());
    }
  }
  // What is pinned has to be on the GPU.
  for (std::size_t i = 0; i < heats.size(); ++i) {
    if (large_.chunks[i].pins > 0) heats[i] = {UINT32_MAX, UINT32_MAX};
  }
  return heats;
}

std::uint64_t Heap::HotOut(Nanos now) const {
  std::lock_guard lock(mutex_);
  const std::vector<Heat> heats = Heats(now);
  std::vector<Heat> out, in;
  for (std::size_t i = 0; i < heats.size(); ++i) {
    const Chunk& chunk = large_.chunks[i];
    if (chunk.blocks == 0) continue;
    // What no mover knows nobody brings back.
    if (chunk.InHost() && chunk.known && chunk.pins == 0) out.push_back(heats[i]);
    if (chunk.MayGo()) in.push_back(heats[i]);
  }
  std::ranges::sort(out, std::greater());
  std::ranges::sort(in);
  std::size_t pairs = 0;
  while (pairs < std::min(out.size(), in.size()) && WorthExchanging(out[pairs], in[pairs])) ++pairs;
  return pairs * large_.chunk_bytes;
}

}  // namespace tessera::pager
