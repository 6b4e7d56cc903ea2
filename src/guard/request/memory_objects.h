#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::guard {

// Account of GPU memory: the objects of the resource manager that hold memory, of all programs behind the gate, and the
// processes that pay for them. Pure; one thread.
//
// Memory has one handle when it is made, and may get more in any client (NV_ESC_RM_DUP_OBJECT); it exists until the
// last one is freed. The process whose client made it pays for it until that process has no handle of it any more; then
// the process of the oldest remaining handle pays.
class MemoryObjects {
 public:
  // Bounds the memory that a hostile program can make the daemon use. A GPU of 141 GiB has 72192 chunks of 2 MiB.
  static constexpr std::size_t kMostObjectsPerProcess = 262144;

  // Wider than RM's handles, which have 32 bits: larger values stand for objects whose handle is not known.
  using Handle = std::uint64_t;

  // RM's instance of a GPU. It is unknown for memory whose parent is unknown.
  static constexpr std::uint32_t kUnknownDevice = UINT32_MAX;

  // A payment that begins (`charge`) or ends: `process` pays for `bytes` on `device`.
  struct Change {
    pid_t process = 0;
    std::uint32_t device = kUnknownDevice;
    std::uint64_t bytes = 0;
    bool charge = false;
    std::uint64_t memory = 0;  // for Unpaid
    bool operator==(const Change&) const = default;
  };
  using Changes = std::vector<Change>;

  // An object as it is recorded.
  struct Entry {
    std::uint32_t client = 0;
    Handle parent = 0, handle = 0;
    std::uint64_t memory = 0;  // handles of one memory have one number; 0: an object without memory
    std::uint64_t bytes = 0;   // of the memory
    std::uint32_t device = kUnknownDevice;
  };
  // Hears of each object that comes and goes, at once.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void Added(const Entry& entry) = 0;
    virtual void Erased(std::uint32_t client, Handle handle) = 0;
  };

  // `observer` outlives the object; null: none.
  explicit MemoryObjects(Observer* observer = nullptr) : observer_(observer) {}

  // Sets the process of a client. Its handles move along, when only a forked child still holds its file.
  Changes SetClient(std::uint32_t client, pid_t process);
  std::optional<pid_t> ProcessOf(std::uint32_t client) const;
  std::vector<std::uint32_t> ClientsOf(pid_t process) const;

  // Whether the client's process may hold one more object.
  bool HasRoom(std::uint32_t client) const;

  // Adds an object: with memory that its client's process has paid for, or (bytes 0) with other objects under it. It
  // replaces an earlier object with that handle, which must be gone: RM gives out a handle once. Unknown clients are
  // ignored. `device` is given for a device; the objects under it belong to it.
  Changes Add(std::uint32_t client, Handle parent, Handle object, std::uint64_t bytes,
              std::uint32_t device = kUnknownDevice);

  // Adds a second handle for a known object with memory; others are ignored.
  Changes Dup(std::uint32_t client, Handle parent, Handle object, std::uint32_t source_client, Handle source_object);

  // An object of an earlier daemon's record, which the observer knows already. To be given in the order of their
  // making, after all clients; those of unknown clients are ignored. The process of a memory's oldest handle pays for
  // it.
  void Restore(const Entry& entry);
  // What the processes pay, one entry for each process and device.
  Changes Payments() const;

  // Frees an object and all objects under it; for a client (object == client), all its objects.
  Changes Free(std::uint32_t client, Handle object);

  // Whether a free of it would change anything.
  bool Knows(std::uint32_t client, Handle object) const;

  bool HoldsMemory(std::uint32_t client, Handle object) const;

  // The device of an object, and of objects that would be made under it.
  std::uint32_t DeviceOf(std::uint32_t client, Handle object) const;

  // Marks memory as paid by no process, after a charge was refused: nothing is given back for it either.
  void Unpaid(std::uint64_t memory);

  std::size_t Objects() const { return objects_.size(); }
  std::size_t Memories() const { return memories_.size(); }

 private:
  using Key = std::pair<std::uint32_t, Handle>;  // client, object
  struct Object {
    Handle parent = 0;
    std::uint64_t memory = 0;  // of memories_; 0: none
    std::uint32_t device = kUnknownDevice;
  };
  struct Memory {
    std::uint64_t bytes = 0;
    std::uint32_t device = kUnknownDevice;
    pid_t payer = 0;           // 0: nobody
    std::vector<Key> handles;  // in the order of their making
  };

  void Insert(const Key& key, const Object& object);
  void Tell(const Key& key, const Object& object) const;
  void Erase(const Key& key, Changes& changes);
  void Settle(std::uint64_t memory, Changes& changes);
  bool HasHandle(const Memory& memory, pid_t process) const;

  Observer* observer_;
  std::map<Key, Object> objects_;
  std::set<std::tuple<std::uint32_t, Handle, Handle>> children_;  // client, parent, object
  std::unordered_map<std::uint64_t, Memory> memories_;
  std::unordered_map<std::uint32_t, pid_t> clients_;
  std::unordered_map<pid_t, std::size_t> counts_;  // objects
  std::uint64_t last_memory_ = 0;
};

}  // namespace tessera::guard
