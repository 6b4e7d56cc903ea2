#include "guard/watch/watch_memory.h"

namespace tessera::guard {

bool WatchedMemory::Add(std::uint32_t client, std::uint32_t parent, std::uint32_t object, Size size) {
  if (const auto known = objects_.find({client, object}); known != objects_.end()) Erase(known);
  if (objects_.size() >= kMostObjects) return false;
  if (handles_[size.get()]++ == 0) bytes_ += *size;
  children_.emplace(client, parent, object);
  objects_[{client, object}] = {.parent = parent, .size = std::move(size)};
  return true;
}

void WatchedMemory::Free(std::uint32_t client, std::uint32_t object) {
  if (object == client) {
    auto own = objects_.lower_bound({client, 0});
    while (own != objects_.end() && own->first.first == client) own = Erase(own);
    return;
  }
  if (const auto known = objects_.find({client, object}); known != objects_.end()) Erase(known);
  for (auto child = children_.lower_bound({client, object, 0});
       child != children_.end() && std::get<0>(*child) == client && std::get<1>(*child) == object;
       child = children_.lower_bound({client, object, 0}))
    Erase(objects_.find({client, std::get<2>(*child)}));
}

WatchedMemory::Size WatchedMemory::Find(std::uint32_t client, std::uint32_t object) const {
  const auto found = objects_.find({client, object});
  return found == objects_.end() ? nullptr : found->second.size;
}

WatchedMemory::ObjectMap::iterator WatchedMemory::Erase(ObjectMap::iterator object) {
  const auto& [client, handle] = object->first;
  children_.erase({client, object->second.parent, handle});
  const auto piece = handles_.find(object->second.size.get());
  if (--piece->second == 0) {
    bytes_ -= *piece->first;
    handles_.erase(piece);
  }
  return objects_.erase(object);
}

}  // namespace tessera::guard
