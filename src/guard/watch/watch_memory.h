#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

namespace tessera::guard {

// GPU memory of a process, as it asked the resource manager for it. Memory with several handles counts once. Pure; its
// input may be anything that a hostile process claims.
class WatchedMemory {
 public:
  // So that a hostile process cannot take the daemon's memory.
  static constexpr std::size_t kMostObjects = 65536;

  // Bytes of a piece of memory. Its handles share it, in other processes too; its address is its identity.
  using Size = std::shared_ptr<const std::uint64_t>;

  // Replaces an existing handle. False if there are too many; then the memory is not counted.
  bool Add(std::uint32_t client, std::uint32_t parent, std::uint32_t object, Size size);
  // Frees an object, which need not be memory, and memory right below it. For a client (object == client), frees all.
  void Free(std::uint32_t client, std::uint32_t object);
  Size Find(std::uint32_t client, std::uint32_t object) const;  // null: no memory of this process

  std::uint64_t Bytes() const { return bytes_; }
  std::size_t Objects() const { return objects_.size(); }

 private:
  struct Object {
    std::uint32_t parent = 0;
    Size size;
  };
  using ObjectMap = std::map<std::pair<std::uint32_t, std::uint32_t>, Object>;  // by client, object
  ObjectMap::iterator Erase(ObjectMap::iterator object);

  ObjectMap objects_;
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> children_;  // client, parent, object
  std::map<const std::uint64_t*, std::size_t> handles_;                         // how many each piece has here
  std::uint64_t bytes_ = 0;                                                     // sum over handles_
};

}  // namespace tessera::guard
