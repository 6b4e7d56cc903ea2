#include "pager/chunks/block_table.h"

#include <iterator>

namespace tessera::pager {

using namespace cuda;

const Block& BlockTable::Add(CUdeviceptr begin, std::uint64_t bytes, CUcontext context) {
  const Block block{.begin = begin, .bytes = bytes, .context = context, .id = next_id_++};
  return blocks_.emplace(begin, block).first->second;
}

Block* BlockTable::At(CUdeviceptr address, std::uint64_t id) {
  const auto at = blocks_.find(address);
  return at == blocks_.end() || (id != 0 && at->second.id != id) ? nullptr : &at->second;
}

Block* BlockTable::Around(CUdeviceptr address) {
  const auto behind = blocks_.upper_bound(address);
  if (behind == blocks_.begin()) return nullptr;
  Block& block = std::prev(behind)->second;
  return address - block.begin < block.bytes ? &block : nullptr;
}

std::pair<BlockTable::Map::iterator, BlockTable::Map::iterator> BlockTable::Within(CUdeviceptr address,
                                                                                   std::uint64_t bytes) {
  const Block* around = Around(address);
  return {blocks_.lower_bound(around ? around->begin : address), blocks_.lower_bound(address + bytes)};
}

std::vector<Block> BlockTable::Of(CUcontext context, std::uint64_t below) const {
  std::vector<Block> found;
  for (const auto& [begin, block] : blocks_) {
    if (block.context == context && block.id < below && !block.reserved) found.push_back(block);
  }
  return found;
}

}  // namespace tessera::pager
