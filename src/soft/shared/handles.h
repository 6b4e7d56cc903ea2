#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace tessera::soft {

// The objects of one type that a program holds handles of. A handle is the object's address, and stays invalid once
// removed, even while queued work still holds the object. Thread-safe.
template <typename Object, typename Handle>
class Handles {
 public:
  // The process's one; never destroyed, since work may outlast the end of main.
  static Handles& Get() {
    static Handles& handles = *new Handles;
    return handles;
  }

  Handle Add(std::shared_ptr<Object> object) {
    const Handle handle = Of(*object);
    const MutexLock lock(mutex_);
    objects_[handle] = std::move(object);
    return handle;
  }

  // Null if `handle` is not one that Add returned and nobody removed.
  std::shared_ptr<Object> Find(Handle handle) const {
    const MutexLock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  // As Find; the handle is invalid from now on.
  std::shared_ptr<Object> Remove(Handle handle) {
    const MutexLock lock(mutex_);
    const auto node = objects_.extract(handle);
    return node ? std::move(node.mapped()) : nullptr;
  }

  std::vector<std::shared_ptr<Object>> All() const {
    std::vector<std::shared_ptr<Object>> all;
    const MutexLock lock(mutex_);
    for (const auto& [handle, object] : objects_) all.push_back(object);
    return all;
  }

  // Removes all objects for which `predicate(object)` is true and returns them.
  template <typename Predicate>
  std::vector<std::shared_ptr<Object>> RemoveIf(Predicate&& predicate) {
    std::vector<std::shared_ptr<Object>> removed;
    const MutexLock lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (predicate(*it->second)) {
        removed.push_back(std::move(it->second));
        it = objects_.erase(it);
      } else {
        ++it;
      }
    }
    return removed;
  }

  static Handle Of(const Object& object) { return reinterpret_cast<Handle>(const_cast<Object*>(&object)); }

 private:
  Handles() = default;

  mutable Mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<Object>> objects_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::soft
