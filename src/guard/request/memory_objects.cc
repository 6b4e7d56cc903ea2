#include "guard/request/memory_objects.h"

#include <algorithm>

namespace tessera::guard {

MemoryObjects::Changes MemoryObjects::SetClient(std::uint32_t client, pid_t process) {
  Changes changes;
  const auto [entry, is_new] = clients_.try_emplace(client, process);
  if (is_new || entry->second == process) return changes;
  const pid_t before = std::exchange(entry->second, process);
  std::set<std::uint64_t> moved;
  for (auto at = objects_.lower_bound({client, 0}); at != objects_.end() && at->first.first == client; ++at) {
    ++counts_[process];
    if (--counts_[before] == 0) counts_.erase(before);
    if (at->second.memory != 0) moved.insert(at->second.memory);
  }
  for (const std::uint64_t memory : moved) Settle(memory, changes);
  return changes;
}

std::optional<pid_t> MemoryObjects::ProcessOf(std::uint32_t client) const {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return {};
  return found->second;
}

std::vector<std::uint32_t> MemoryObjects::ClientsOf(pid_t process) const {
  std::vector<std::uint32_t> clients;
  for (const auto& [client, its_process] : clients_) {
    if (its_process == process) clients.push_back(client);
  }
  return clients;
}

bool MemoryObjects::HasRoom(std::uint32_t client) const {
  const auto process = ProcessOf(client);
  if (!process) return false;
  const auto count = counts_.find(*process);
  return count == counts_.end() || count->second < kMostObjectsPerProcess;
}

void MemoryObjects::Insert(const Key& key, const Object& object) {
  objects_[key] = object;
  children_.insert({key.first, object.parent, key.second});
  ++counts_[clients_.at(key.first)];
}

void MemoryObjects::Tell(const Key& key, const Object& object) const {
  if (!observer_) return;
  observer_->Added({.client = key.first,
                    .parent = object.parent,
                    .handle = key.second,
                    .memory = object.memory,
                    .bytes = object.memory == 0 ? 0 : memories_.at(object.memory).bytes,
                    .device = object.device});
}

void MemoryObjects::Restore(const Entry& entry) {
  const auto client = clients_.find(entry.client);
  const Key key(entry.client, entry.handle);
  if (client == clients_.end() || objects_.contains(key)) return;
  if (entry.memory != 0) {
    const auto [memory, is_new] = memories_.try_emplace(entry.memory);
    if (is_new) {
      memory->second = {.bytes = entry.bytes, .device = entry.device, .payer = client->second, .handles = {}};
    }
    memory->second.handles.push_back(key);
    last_memory_ = std::max(last_memory_, entry.memory);
  }
  Insert(key, {.parent = entry.parent, .memory = entry.memory, .device = entry.device});
}

MemoryObjects::Changes MemoryObjects::Payments() const {
  std::map<std::pair<pid_t, std::uint32_t>, std::uint64_t> sums;
  for (const auto& [_, memory] : memories_) {
    if (memory.payer != 0) sums[{memory.payer, memory.device}] += memory.bytes;
  }
  Changes payments;
  for (const auto& [key, bytes] : sums)
    payments.push_back({.process = key.first, .device = key.second, .bytes = bytes, .charge = true});
  return payments;
}

std::uint32_t MemoryObjects::DeviceOf(std::uint32_t client, Handle object) const {
  const auto found = objects_.find({client, object});
  return found == objects_.end() ? kUnknownDevice : found->second.device;
}

MemoryObjects::Changes MemoryObjects::Add(std::uint32_t client, Handle parent, Handle object, std::uint64_t bytes,
                                          std::uint32_t device) {
  if (!clients_.contains(client) || object == client) return {};
  if (device == kUnknownDevice) device = DeviceOf(client, parent);
  Changes changes = Free(client, object);
  if (!HasRoom(client)) return changes;
  std::uint64_t memory = 0;
  if (bytes > 0) {
    memory = ++last_memory_;
    const pid_t payer = clients_.at(client);
    memories_[memory] = {.bytes = bytes, .device = device, .payer = payer, .handles = {{client, object}}};
  }
  const Object added{.parent = parent, .memory = memory, .device = device};
  Insert({client, object}, added);
  Tell({client, object}, added);
  return changes;
}

MemoryObjects::Changes MemoryObjects::Dup(std::uint32_t client, Handle parent, Handle object,
                                          std::uint32_t source_client, Handle source_object) {
  if (!clients_.contains(client) || object == client) return {};
  const auto source = objects_.find({source_client, source_object});
  if (source == objects_.end() || source->second.memory == 0) return {};
  Changes changes = Free(client, object);
  const auto still = objects_.find({source_client, source_object});  // it may have been under the old object
  if (still == objects_.end() || !HasRoom(client)) return changes;
  const std::uint64_t memory = still->second.memory;
  memories_.at(memory).handles.emplace_back(client, object);
  const Object added{.parent = parent, .memory = memory, .device = memories_.at(memory).device};
  Insert({client, object}, added);
  Tell({client, object}, added);
  return changes;
}

bool MemoryObjects::Knows(std::uint32_t client, Handle object) const {
  if (object == client) return clients_.contains(client);
  if (objects_.contains({client, object})) return true;
  const auto child = children_.lower_bound({client, object, 0});
  return child != children_.end() && std::get<0>(*child) == client && std::get<1>(*child) == object;
}

bool MemoryObjects::HoldsMemory(std::uint32_t client, Handle object) const {
  const auto found = objects_.find({client, object});
  return found != objects_.end() && found->second.memory != 0;
}

MemoryObjects::Changes MemoryObjects::Free(std::uint32_t client, Handle object) {
  Changes changes;
  if (object == client) {
    for (auto at = objects_.lower_bound({client, 0}); at != objects_.end() && at->first.first == client;) {
      Erase((at++)->first, changes);
    }
    clients_.erase(client);
    return changes;
  }
  // Depth first, without recursion: a hostile program may nest as deep as it likes.
  std::vector<Handle> doomed{object};
  while (!doomed.empty()) {
    const Handle next = doomed.back();
    doomed.pop_back();
    Erase({client, next}, changes);
    for (auto child = children_.lower_bound({client, next, 0});
         child != children_.end() && std::get<0>(*child) == client && std::get<1>(*child) == next; ++child) {
      doomed.push_back(std::get<2>(*child));
    }
  }
  return changes;
}

void MemoryObjects::Erase(const Key& key, Changes& changes) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return;
  const Key gone = key;  // `key` may lie in what is erased
  const Object object = found->second;
  children_.erase({gone.first, object.parent, gone.second});
  objects_.erase(found);
  if (observer_) observer_->Erased(gone.first, gone.second);
  const auto count = counts_.find(clients_.at(gone.first));
  if (--count->second == 0) counts_.erase(count);
  if (object.memory == 0) return;
  std::erase(memories_.at(object.memory).handles, gone);
  Settle(object.memory, changes);
}

bool MemoryObjects::HasHandle(const Memory& memory, pid_t process) const {
  return std::any_of(memory.handles.begin(), memory.handles.end(),
                     [&](const Key& key) { return clients_.at(key.first) == process; });
}

void MemoryObjects::Settle(std::uint64_t id, Changes& changes) {
  Memory& memory = memories_.at(id);
  const bool gone = memory.handles.empty();
  if (memory.payer != 0 && (gone || !HasHandle(memory, memory.payer))) {
    changes.push_back({memory.payer, memory.device, memory.bytes, false, id});
    memory.payer = 0;
    if (!gone) {
      memory.payer = clients_.at(memory.handles.front().first);
      changes.push_back({memory.payer, memory.device, memory.bytes, true, id});
    }
  }
  if (gone) memories_.erase(id);
}

void MemoryObjects::Unpaid(std::uint64_t id) {
  const auto memory = memories_.find(id);
  if (memory != memories_.end()) memory->second.payer = 0;
}

}  // namespace tessera::guard
