#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "channel/rm/driver_abi.h"
#include "channel/rm/object_event.h"

namespace tessera::channel {

// A channel group (TSG; RM: KEPLER_CHANNEL_GROUP_A) of a process. It has one time slice; a freeze takes its channels
// off one by one.
struct Group {
  std::int32_t fd = -1;  // the process's descriptor of the file that made it; -1: unknown, no slices then
  std::uint32_t client = 0;
  std::uint32_t handle = 0;  // 0: channels that were made without a group; they can be frozen, but have no slice
  std::uint32_t engine = 0;
  bool borrowed = false;  // it is another process's: a client of MPS makes its channels in its server's group
  std::vector<std::uint32_t> channels;  // handles
  bool operator==(const Group&) const = default;
};

// Whether the group's channels compute. A group whose engine is unknown counts as one that does.
inline bool IsCompute(const Group& group) {
  return group.handle == 0 || group.engine == 0 || group.engine == abi::kEngineGraphics;
}

// The objects of one process that lead to channels. Pure: fed with events, in any order that a process may cause and
// with any nonsense that a hostile one may claim; what makes no sense is ignored: a parent must be known, and be of the
// right kind (client, device, group, channel; a channel may also lie under a device). A free of a parent frees its
// children. A handle that is allocated again replaces what it named and all below it; but two sources may tell the same
// event, so an allocation that is known already, with the same parent, class and detail, changes nothing, unless it is
// a client of another file: the end of a file ends its clients, and no event tells it.
class ObjectTable {
 public:
  // A bound, so that a hostile process cannot take the daemon's memory; objects beyond it are ignored.
  static constexpr std::size_t kMostObjects = 16384;

  // Whether Groups() may answer otherwise now.
  bool Apply(const ObjectEvent& event);

  // The groups on the GPU of the given device instance, in the order of their making; those without channels, too.
  // A group's fd is that of its client.
  std::vector<Group> Groups(std::uint32_t device) const;
  std::size_t Channels() const;  // on all GPUs
  // Allocations that make the same objects in another table.
  std::vector<ObjectEvent> Events() const;
  std::size_t Objects() const { return objects_.size(); }
  bool Empty() const { return objects_.empty(); }

 private:
  struct Object {
    std::uint32_t parent = 0, cls = 0, detail = 0;
    std::int32_t fd = -1;  // of a client
    std::uint64_t order = 0;
  };
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // client, object

  bool Alloc(const ObjectEvent& event);
  // RM takes requests of a client through the file that made it only: so any of its events tells the file.
  bool LearnFile(const ObjectEvent& event);
  bool Fits(const ObjectEvent& event) const;
  // Removes an object and all below it. True if a group or a channel was among them.
  bool Remove(Key key);
  const Object* Find(std::uint32_t client, std::uint32_t handle) const;

  std::map<Key, Object> objects_;
  // Client, parent, object: what lies below a parent. Without it a process that frees much would cost much.
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> children_;
  std::uint64_t last_order_ = 0;
};

}  // namespace tessera::channel
