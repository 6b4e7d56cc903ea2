#include "guard/watch/watch_table.h"

#include <memory>

#include "channel/rm/driver_abi.h"

namespace tessera::guard {

void WatchTable::Apply(const WatchEvent& event) {
  switch (event.kind) {
    case WatchEvent::Kind::kAlloc:
      return ApplyAlloc(Know(event), event);
    case WatchEvent::Kind::kFree: {
      WatchedProcess& process = Know(event);
      process.objects.Apply(
          {.kind = channel::ObjectEvent::Kind::kFree, .fd = event.fd, .client = event.client, .object = event.object});
      return process.memory.Free(event.client, event.object);
    }
    case WatchEvent::Kind::kDup:
      return ApplyDup(Know(event), event);
    case WatchEvent::Kind::kExit:
      processes_.erase(KeyOf(event));
      return;
    case WatchEvent::Kind::kExisting:
      Know(event).complete = false;
      return;
    case WatchEvent::Kind::kLost:
      for (auto& [key, process] : processes_) process.complete = false;
      return;
  }
}

void WatchTable::Remove(pid_t pid) { processes_.erase({false, pid}); }

const WatchedProcess* WatchTable::Find(pid_t pid) const {
  const auto found = processes_.find({false, pid});
  return found == processes_.end() ? nullptr : &found->second;
}

std::vector<const WatchedProcess*> WatchTable::All() const {
  std::vector<const WatchedProcess*> all;
  all.reserve(processes_.size());
  for (const auto& [key, process] : processes_) all.push_back(&process);
  return all;
}

WatchTable::Key WatchTable::KeyOf(const WatchEvent& event) {
  return event.pid != 0 ? Key{false, event.pid} : Key{true, event.host_pid};
}

WatchedProcess& WatchTable::Know(const WatchEvent& event) {
  const auto [found, first] = processes_.try_emplace(KeyOf(event));
  WatchedProcess& process = found->second;
  if (!first) {
    if (process.host_pid == 0) process.host_pid = event.host_pid;
    return process;
  }
  process.pid = event.pid;
  process.host_pid = event.host_pid;
  process.name = event.name;
  // The first thing that anybody allocates is a client; who begins with something else began before the watch did.
  process.complete = event.kind == WatchEvent::Kind::kAlloc && channel::abi::IsRoot(event.cls);
  return process;
}

void WatchTable::ApplyAlloc(WatchedProcess& process, const WatchEvent& event) {
  if (event.cls != channel::abi::kMemoryLocal) {
    process.objects.Apply({.kind = channel::ObjectEvent::Kind::kAlloc,
                           .fd = event.fd,
                           .client = event.client,
                           .parent = event.parent,
                           .object = event.object,
                           .cls = event.cls,
                           .detail = event.detail});
  } else if (!process.memory.Add(event.client, event.parent, event.object,
                                 std::make_shared<const std::uint64_t>(event.bytes))) {
    process.complete = false;
  }
}

void WatchTable::ApplyDup(WatchedProcess& process, const WatchEvent& event) {
  auto size = FindMemory(process, event.source_client, event.source_object);
  if (size == nullptr) return;  // of something else, or of memory from before the watch
  if (!process.memory.Add(event.client, event.parent, event.object, std::move(size))) process.complete = false;
}

WatchedMemory::Size WatchTable::FindMemory(const WatchedProcess& first, std::uint32_t client,
                                           std::uint32_t object) const {
  if (auto own = first.memory.Find(client, object)) return own;
  for (const auto& [key, process] : processes_)
    if (auto size = process.memory.Find(client, object)) return size;
  return nullptr;
}

}  // namespace tessera::guard
