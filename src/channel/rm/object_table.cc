#include "channel/rm/object_table.h"

#include <algorithm>

#include "channel/rm/driver_abi.h"

namespace tessera::channel {
namespace {

bool IsGroup(std::uint32_t cls) { return cls == abi::kChannelGroup || cls == abi::kBorrowedGroup; }
bool ShowsInGroups(std::uint32_t cls) { return IsGroup(cls) || abi::IsChannel(cls); }

}  // namespace

const ObjectTable::Object* ObjectTable::Find(std::uint32_t client, std::uint32_t handle) const {
  const auto found = objects_.find({client, handle});
  return found == objects_.end() ? nullptr : &found->second;
}

bool ObjectTable::Apply(const ObjectEvent& event) {
  switch (event.kind) {
    case ObjectEvent::Kind::kAlloc:
      return Alloc(event);
    case ObjectEvent::Kind::kFree:
      return Remove({event.client, event.object});
  }
  return false;  // a number that somebody made up
}

bool ObjectTable::Fits(const ObjectEvent& event) const {
  if (event.object == 0) return false;
  if (abi::IsRoot(event.cls)) return event.object == event.client;
  if (event.object == event.client || event.object == event.parent) return false;
  const Object* parent = Find(event.client, event.parent);
  if (parent == nullptr) return false;
  if (event.cls == abi::kDevice) return abi::IsRoot(parent->cls);
  if (IsGroup(event.cls)) return parent->cls == abi::kDevice;
  return abi::IsChannel(event.cls) && (IsGroup(parent->cls) || parent->cls == abi::kDevice);
}

bool ObjectTable::Alloc(const ObjectEvent& event) {
  if (!Fits(event)) return false;
  const Key key = {event.client, event.object};
  const bool root = abi::IsRoot(event.cls);
  const std::uint32_t parent = root ? 0 : event.parent;
  bool changed = false;
  if (const auto known = objects_.find(key); known != objects_.end()) {
    const Object& object = known->second;
    const bool other_file = root && object.fd >= 0 && event.fd >= 0 && object.fd != event.fd;
    if (object.parent == parent && object.cls == event.cls && object.detail == event.detail && !other_file) {
      return LearnFile(event);
    }
    changed = Remove(key);
    // The parent may have been below the object whose place is taken.
    if (!Fits(event)) return changed;
  }
  if (objects_.size() >= kMostObjects) return changed;
  objects_[key] = {.parent = parent, .cls = event.cls, .detail = event.detail, .fd = -1, .order = ++last_order_};
  if (!root) children_.emplace(event.client, parent, event.object);
  changed |= ShowsInGroups(event.cls);
  const bool learned = LearnFile(event);
  return changed || (learned && !root);
}

bool ObjectTable::LearnFile(const ObjectEvent& event) {
  Object& client = objects_.at({event.client, event.client});
  if (client.fd >= 0 || event.fd < 0) return false;
  client.fd = event.fd;
  return true;
}

bool ObjectTable::Remove(Key key) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) return false;
  const auto client = key.first;
  children_.erase({client, found->second.parent, key.second});
  bool shown = false;
  std::vector<std::uint32_t> gone = {key.second};
  while (!gone.empty()) {
    const std::uint32_t handle = gone.back();
    gone.pop_back();
    const auto object = objects_.find({client, handle});
    shown |= ShowsInGroups(object->second.cls);
    objects_.erase(object);
    auto child = children_.lower_bound({client, handle, 0});
    while (child != children_.end() && std::get<0>(*child) == client && std::get<1>(*child) == handle) {
      gone.push_back(std::get<2>(*child));
      child = children_.erase(child);
    }
  }
  return shown;
}

std::vector<Group> ObjectTable::Groups(std::uint32_t device) const {
  // By the making of a group or a channel, so that both come out in their order.
  std::map<std::uint64_t, Key> ordered;
  for (const auto& [key, object] : objects_) {
    if (ShowsInGroups(object.cls)) ordered.emplace(object.order, key);
  }
  std::vector<Group> groups;
  std::map<Key, std::size_t> place;  // of a group, or of {client, 0}
  for (const auto& [order, key] : ordered) {
    const std::uint32_t client = key.first;
    const Object& object = *Find(client, key.second);
    const Object& parent = *Find(client, object.parent);
    const bool group = IsGroup(object.cls);
    const bool grouped = !group && IsGroup(parent.cls);
    const Object& owner = grouped ? *Find(client, parent.parent) : parent;
    if (owner.detail != device) continue;
    const std::uint32_t handle = group ? key.second : grouped ? object.parent : 0;
    const auto [at, first] = place.emplace(Key{client, handle}, groups.size());
    if (first) {
      const std::uint32_t engine = group ? object.detail : grouped ? parent.detail : 0;
      const bool borrowed = (group ? object.cls : parent.cls) == abi::kBorrowedGroup;
      groups.push_back(
          {.fd = Find(client, client)->fd, .client = client, .handle = handle, .engine = engine, .borrowed = borrowed});
    }
    if (!group) groups[at->second].channels.push_back(key.second);
  }
  return groups;
}

std::vector<ObjectEvent> ObjectTable::Events() const {
  std::map<std::uint64_t, Key> ordered;  // a parent before its children
  for (const auto& [key, object] : objects_) ordered.emplace(object.order, key);
  std::vector<ObjectEvent> events;
  for (const auto& [order, key] : ordered) {
    const auto [client, handle] = key;
    const Object& object = *Find(client, handle);
    events.push_back({.kind = ObjectEvent::Kind::kAlloc,
                      .fd = Find(client, client)->fd,
                      .client = client,
                      .parent = object.parent,
                      .object = handle,
                      .cls = object.cls,
                      .detail = object.detail});
  }
  return events;
}

std::size_t ObjectTable::Channels() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(objects_, [](const auto& entry) { return abi::IsChannel(entry.second.cls); }));
}

}  // namespace tessera::channel
