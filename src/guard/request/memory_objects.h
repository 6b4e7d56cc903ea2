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

// Who pays for GPU memory: the objects of the resource manager that hold it, of all programs behind the gate. Figures
// only; pure. One thread.
//
// Memory has one handle when it is made, and more by dups, in any client; it is there until the last one is freed. The
// process whose client made it pays for it until it has none of the handles any more; then the process of the oldest
// handle that is left does.
class MemoryObjects {
 public:
  // Bounds on what hostile programs can make us remember. 2 MiB chunks of a 141 GiB GPU are 72192 objects.
  static constexpr std::size_t kMostObjectsPerProcess = 262144;

  // Beyond the handles of RM, which are 32 bits wide: an object of which the handle is not known.
  using Handle = std::uint64_t;

  // RM's instance of a GPU. Of memory whose parent was not told it is not known.
  static constexpr std::uint32_t kUnknownDevice = UINT32_MAX;

  // Money that changes hands: `charge` true: `process` is to pay for `bytes` on `device` from now on, else no longer.
  struct Change {
    pid_t process = 0;
    std::uint32_t device = kUnknownDevice;
    std::uint64_t bytes = 0;
    bool charge = false;
    std::uint64_t memory = 0;  // for Unpaid
    bool operator==(const Change&) const = default;
  };
  using Changes = std::vector<Change>;

  // A client and its process. A client that moves (its file is held by a forked child alone) takes its handles along.
  Changes SetClient(std::uint32_t client, pid_t process);
  std::optional<pid_t> ProcessOf(std::uint32_t client) const;
  std::vector<std::uint32_t> ClientsOf(pid_t process) const;

  // Whether the client's process may hold one more object.
  bool HasRoom(std::uint32_t client) const;

  // A new object: with memory that its client's process has paid for, or (bytes 0) one that has other objects under
  // it. An object of that handle that was there before is gone: RM gives a handle out once. Unknown clients are
  // ignored. `device` is for an object that is one; all under it are its.
  Changes Add(std::uint32_t client, Handle parent, Handle object, std::uint64_t bytes,
              std::uint32_t device = kUnknownDevice);

  // A second handle for a known object that holds memory; others are ignored.
  Changes Dup(std::uint32_t client, Handle parent, Handle object, std::uint32_t source_client, Handle source_object);

  // Frees an object and all under it; of a client (object == client), all of it.
  Changes Free(std::uint32_t client, Handle object);

  // Whether a free of it would change anything.
  bool Knows(std::uint32_t client, Handle object) const;

  bool HoldsMemory(std::uint32_t client, Handle object) const;

  // Whose an object is, or would be that has it as its parent.
  std::uint32_t DeviceOf(std::uint32_t client, Handle object) const;

  // A charge was refused, so nobody pays for this memory, and nobody is given anything back for it.
  void Unpaid(std::uint64_t memory);

  std::uint64_t Held(pid_t process) const;  // bytes that it pays for
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
  void Erase(const Key& key, Changes& changes);
  void Settle(std::uint64_t memory, Changes& changes);
  bool HasHandle(const Memory& memory, pid_t process) const;
  void Pay(pid_t process, std::uint64_t bytes, bool charge);

  std::map<Key, Object> objects_;
  std::set<std::tuple<std::uint32_t, Handle, Handle>> children_;  // client, parent, object
  std::unordered_map<std::uint64_t, Memory> memories_;
  std::unordered_map<std::uint32_t, pid_t> clients_;
  std::unordered_map<pid_t, std::uint64_t> held_;
  std::unordered_map<pid_t, std::size_t> counts_;  // objects
  std::uint64_t last_memory_ = 0;
};

}  // namespace tessera::guard
