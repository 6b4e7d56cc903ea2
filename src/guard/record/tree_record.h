#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "guard/request/memory_objects.h"
#include "guard/request/requests.h"

namespace tessera::guard {

// The supervisor's call in hand, between its receipt and its answer. The kernel itself writes the notification here, so
// that a call is either still with the kernel or here, whenever the daemon is killed.
struct CallInHand {
  // How far the call is. A call that was made must be answered with what the driver said, and not be made twice.
  enum class Stage : std::uint32_t { kReceived, kExecuting, kExecuted };
  static constexpr std::size_t kMostParamBytes = 4096;

  std::array<std::uint64_t, 64> notification{};  // struct seccomp_notif; its first word is the id, 0: no call
  Stage stage = Stage::kReceived;
  std::uint32_t argument_bytes = 0, params_bytes = 0;
  std::uint32_t copied = 0;  // 1: the parameters are below
  std::int64_t result = 0;   // of ioctl(2), when it was executed
  // The ioctl's argument and the parameters that it points to: as the program gave them, and as the driver left them.
  std::array<std::byte, kMostArgumentBytes> argument_before{}, argument{};
  std::array<std::byte, kMostParamBytes> params_before{}, params{};

  std::uint64_t Id() const { return notification[0]; }
};

// What the supervisor knows of a program tree: the program, its RM clients and counted objects, the call in hand. Lies
// in a memfd that the gate holder keeps as well, so it outlives the daemon. The daemon may be killed between any two
// stores: an entry counts from the store of its kind on. One thread at a time.
class TreeRecord : public MemoryObjects::Observer {
 public:
  // Other versions of Tessera read records of this version only.
  static constexpr std::uint32_t kVersion = 2;

  struct Program {
    std::string vgpus;  // names, separated by commas; shorter than 512 bytes
    std::string name;   // to be shown; the first 63 bytes are kept
    pid_t pid = 0;
    uid_t uid = 0;
    bool by_operator = false;  // an operator put it into the vGPUs, or is its user
  };
  // An RM client: the process that it belongs to, and the file on which it can be reached.
  struct Client {
    std::uint32_t client = 0;
    pid_t process = 0;
    pid_t holder = 0;
    int fd = -1;
    std::uint64_t start = 0;  // ProcessStart of the process; 0: not known

    // Whether the process lives, and its pid is not another's by now.
    bool Lives() const;
  };
  // What was told about an object that leads to channels (channel::ObjectEvent). cls 0: nothing.
  struct Told {
    int fd = -1;
    std::uint32_t cls = 0, detail = 0;
  };
  struct Object {
    MemoryObjects::Entry entry;
    Told told;
  };

  static Result<TreeRecord> Create(const Program& program);
  // The record of an earlier daemon. EPROTO: of another version, or none.
  static Result<TreeRecord> Open(UniqueFd memory);
  TreeRecord(TreeRecord&& other) noexcept;
  TreeRecord& operator=(TreeRecord&&) = delete;
  ~TreeRecord() override;

  int Fd() const { return memory_.Get(); }
  Program Owner() const;
  // Writes other vGPUs into the record that lies in `memory`, which somebody may have open.
  static Result<void> SetVGpus(int memory, const std::string& vgpus);
  // At the same address as long as the record exists.
  CallInHand& Call();

  // Makes room for a few more entries. False: there is no memory for them; what is put is then not recorded.
  bool Reserve();
  void Put(const Client& client);
  void EraseClient(std::uint32_t client);
  void Tell(std::uint32_t client, MemoryObjects::Handle handle, const Told& told);
  // MemoryObjects::Observer
  void Added(const MemoryObjects::Entry& entry) override;
  void Erased(std::uint32_t client, MemoryObjects::Handle handle) override;

  // In the order in which they were put.
  std::vector<Client> Clients() const;
  std::vector<Object> Objects() const;
  // Clients and objects as they were. `objects` is empty before.
  void Restore(MemoryObjects& objects) const;

 private:
  struct Header;
  struct Slot;
  enum class Kind : std::uint32_t { kFree, kClient, kObject };
  using Key = std::pair<std::uint32_t, MemoryObjects::Handle>;
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::uint64_t>()(key.second * 0x9e3779b97f4a7c15ULL ^ key.first);
    }
  };

  TreeRecord() = default;
  Result<void> Map(std::size_t slots);
  bool Grow();
  void Put(Kind kind, const Key& key, const Slot& slot);
  void Erase(Kind kind, const Key& key);
  std::vector<const Slot*> Sorted(Kind kind) const;

  UniqueFd memory_;
  Header* header_ = nullptr;  // mapped
  std::span<Slot> slots_;     // mapped
  std::vector<std::uint32_t> free_;
  std::unordered_map<Key, std::uint32_t, Hash> clients_, objects_;
  std::uint64_t last_order_ = 0;
};

}  // namespace tessera::guard
