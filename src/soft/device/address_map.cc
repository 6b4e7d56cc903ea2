#include "soft/device/address_map.h"

#include <thread>

namespace tessera::soft {
namespace {

template <typename Map>
auto Containing(Map& mappings, std::uint64_t address) {
  auto next = mappings.upper_bound(address);
  if (next == mappings.begin()) return mappings.end();
  --next;
  return address - next->second.address < next->second.bytes ? next : mappings.end();
}

}  // namespace

AddressMap& AddressMap::Get() {
  static AddressMap& map = *new AddressMap;  // never destroyed: programs call the driver until they are gone
  return map;
}

ptx::Range AddressMap::Find(std::uint64_t address) {
  const ReaderLock lock(mutex_);
  const auto found = Containing(mappings_, address);
  if (found == mappings_.end()) return {};
  return {found->second.address, found->second.address + found->second.bytes};
}

std::optional<Mapping> AddressMap::Lookup(std::uint64_t address) const {
  const ReaderLock lock(mutex_);
  const auto found = Containing(mappings_, address);
  if (found == mappings_.end()) return std::nullopt;
  return found->second;
}

bool AddressMap::Covers(std::uint64_t address, std::uint64_t bytes) const {
  const ReaderLock lock(mutex_);
  while (bytes > 0) {
    const auto found = Containing(mappings_, address);
    if (found == mappings_.end()) return false;
    const std::uint64_t rest = found->second.address + found->second.bytes - address;
    if (rest >= bytes) return true;
    address += rest;
    bytes -= rest;
  }
  return true;
}

bool AddressMap::Insert(Mapping mapping) {
  const WriterLock lock(mutex_);
  const auto next = mappings_.lower_bound(mapping.address);
  if (next != mappings_.end() && next->second.address - mapping.address < mapping.bytes) return false;
  if (Containing(mappings_, mapping.address) != mappings_.end()) return false;
  mapping.id = next_id_++;
  mappings_.emplace(mapping.address, mapping);
  return true;
}

std::optional<Mapping> AddressMap::Remove(std::uint64_t address) {
  const WriterLock lock(mutex_);
  const auto node = mappings_.extract(address);
  if (!node) return std::nullopt;
  return node.mapped();
}

void AddressMap::SetSyncMemops(std::uint64_t address, bool on) {
  const WriterLock lock(mutex_);
  auto next = mappings_.upper_bound(address);
  if (next != mappings_.begin()) std::prev(next)->second.sync_memops = on;
}

std::vector<Mapping> AddressMap::OfContext(const Context* context) const {
  const ReaderLock lock(mutex_);
  std::vector<Mapping> owned;
  for (const auto& [address, mapping] : mappings_) {
    if (mapping.context == context) owned.push_back(mapping);
  }
  return owned;
}

AddressMap::Kernels::Kernels() {
  AddressMap& map = Get();
  // The lock itself would let kernels that come and go keep a change out for ever.
  while (map.changes_wanted_ > 0) std::this_thread::yield();
  map.running_.LockShared();
}

AddressMap::Kernels::~Kernels() { Get().running_.UnlockShared(); }

AddressMap::Changes::Changes() {
  ++Get().changes_wanted_;
  Get().running_.Lock();
}

AddressMap::Changes::~Changes() {
  Get().running_.Unlock();
  --Get().changes_wanted_;
}

}  // namespace tessera::soft
