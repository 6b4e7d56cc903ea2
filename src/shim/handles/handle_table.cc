#include "shim/handles/handle_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tessera::shim {

using namespace cuda;

PhysicalMemory* HandleTable::Find(Handle handle) const {
  const auto at = memories_.find(handle);
  return at == memories_.end() || at->second->handles == 0 ? nullptr : at->second.get();
}

HandleTable::Handle HandleTable::Add(std::unique_ptr<PhysicalMemory> memory) {
  const auto handle = reinterpret_cast<Handle>(memory.get());
  memories_.emplace(handle, std::move(memory));
  return handle;
}

void HandleTable::EndIfUnused(PhysicalMemory& memory) {
  if (memory.handles > 0 || memory.mappings > 0) return;
  if (memory.Place() != 0) blocks_.erase(memory.Place());
  memory.End();
  memories_.erase(reinterpret_cast<Handle>(&memory));
}

void HandleTable::EndBlock(CUdeviceptr place, PhysicalMemory& memory, std::uint64_t id) {
  blocks_.erase(place);
  if (memory.mappings == 0) return;
  Mapping& mapping = mappings_.find(place)->second;
  mapping.held = &memory.paging;
  mapping.id = id;
}

void HandleTable::AddMapping(const Range& range, PhysicalMemory* memory, Paging* held) {
  mappings_[range.begin] = {.bytes = range.bytes, .memory = memory, .held = held, .id = next_id_++};
}

std::optional<HandleTable::Mapped> HandleTable::MappedAt(CUdeviceptr address) {
  const auto at = Around(address);
  if (at == mappings_.end()) return std::nullopt;
  const auto& [begin, mapping] = *at;
  Mapped mapped{.begin = begin, .bytes = mapping.bytes, .id = mapping.id, .prop = {}};
  if (mapping.memory) mapped.prop = mapping.memory->prop;
  return mapped;
}

std::vector<HandleTable::Mappings::iterator> HandleTable::WholeIn(const Range& range) {
  std::vector<Mappings::iterator> found;
  std::uint64_t end = range.begin;
  for (auto at = mappings_.find(end); at != mappings_.end() && at->first == end && end - range.begin < range.bytes;
       ++at) {
    found.push_back(at);
    end += at->second.bytes;
  }
  return end - range.begin == range.bytes ? found : std::vector<Mappings::iterator>{};
}

HandleTable::Mappings::iterator HandleTable::Around(CUdeviceptr address) {
  const auto behind = mappings_.upper_bound(address);
  if (behind == mappings_.begin()) return mappings_.end();
  const auto at = std::prev(behind);
  return address - at->first < at->second.bytes ? at : mappings_.end();
}

bool HandleTable::IsFree(const Range& range) {
  const auto next = mappings_.lower_bound(range.begin);
  return Around(range.begin) == mappings_.end() &&
         (next == mappings_.end() || next->first - range.begin >= range.bytes);
}

CUdeviceptr HandleTable::PlaceOf(const PhysicalMemory& memory) const {
  CUdeviceptr place = 0;
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.memory == &memory) place = address;
  }
  return place;
}

InHand::Things HandleTable::MappedIn(const Range& range) {
  InHand::Things things{.memories = {}, .range = range};
  auto at = Around(range.begin);
  if (at == mappings_.end()) at = mappings_.lower_bound(range.begin);
  for (; at != mappings_.end() && at->first < range.begin + range.bytes; ++at) {
    if (at->second.memory) things.memories.push_back(at->second.memory);
  }
  return things;
}

InHand::Things HandleTable::UnmappedIn(const Range& range, PhysicalMemory* also) const {
  InHand::Things things{.memories = {}, .range = range};
  for (const auto& [place, memory] : blocks_) {
    if (place < range.begin + range.bytes && range.begin < place + memory->bytes && memory->mappings == 0)
      things.memories.push_back(memory);
  }
  if (also && std::ranges::find(things.memories, also) == things.memories.end()) things.memories.push_back(also);
  return things;
}

}  // namespace tessera::shim
