#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "guard/gate/borrowed_file.h"
#include "guard/gate/gate_call.h"
#include "guard/gate/hooks.h"
#include "guard/gate/kernel_boundary.h"
#include "guard/gate/processes.h"
#include "guard/record/tree_record.h"
#include "guard/request/memory_objects.h"
#include "guard/request/requests.h"

namespace tessera::guard {

// The RM clients (NV01_ROOT_CLIENT) of all programs behind the gate: the process each belongs to, the file on which it
// can be reached, and the objects with memory in it. Charges the processes for that memory, and finds clients whose
// file was closed without NV_ESC_RM_FREE. Used by the Supervisor's thread only.
//
// A client belongs to the process that used it first. The program's word is not trusted for that: the driver knows a
// client only on the file that made it, so each claim is checked on the program's own file.
class Clients {
 public:
  // A caller, and a duplicate of the file that it makes its call on.
  struct Loan {
    pid_t pid = 0;
    UniqueFd file;
    int error = 0;  // not 0: an errno value, and neither of the above
  };

  // Goes on where the record is. It outlives the object.
  static Result<Clients> Create(SupervisorHooks hooks, KernelBoundary& boundary, TreeRecord& record);

  // EINVAL or ENOTTY for a file that is not /dev/nvidiactl, as the kernel answers.
  Loan Borrow(const GateCall& call, const StillWaits& waits);

  // The process whose client it is, if the caller may use it and there is room in the record. Of a client that was not
  // known yet, that is the caller.
  std::optional<pid_t> OwnerOf(const Loan& loan, const GateCall& call, std::uint32_t client);
  // Whether the client is the process's own, by the process's own file: RM may have given its number out again.
  bool IsOwn(std::uint32_t client, pid_t pid);

  // Whether the process may have the memory: charges it. Looks for clients that have ended before it refuses. Nothing:
  // as the hook says.
  std::optional<bool> Charge(pid_t pid, std::uint32_t device, std::uint64_t bytes);
  // Of what was charged, before it was added.
  void GiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes);

  // Record what programs made and freed, by the rules of MemoryObjects. `bytes` were charged.
  // `told`: of an object that leads to channels, and null of others.
  void Add(const Request& request, MemoryObjects::Handle object, std::uint64_t bytes, std::uint32_t device,
           const channel::ObjectEvent* told);
  void Dup(const Request& request, MemoryObjects::Handle object);
  void Freed(std::uint32_t client, std::uint32_t object);
  const MemoryObjects& objects() const { return objects_; }

  // Ends those clients of the caller's process whose file is closed. RM may give out their numbers again.
  void EndClosed(const GateCall& call);
  // The last process behind a listener is gone.
  void TreeEnded(std::uint64_t tree);

  // To be called when EndedFd is readable, and when NextCheck (CLOCK_MONOTONIC; kNever) has come.
  void Check();
  int EndedFd() const { return processes_.EndedFd(); }
  Nanos NextCheck() const { return suspects_.empty() ? kNever : last_search_ + kSearchInterval; }

 private:
  static constexpr std::size_t kMostPerProcess = 256;
  static constexpr std::uint64_t kRestoredTree = 1;  // a record is of the first listener of a supervisor
  static constexpr std::uint64_t kMostMemoryBytes = 1ULL << 48;
  // Shortest time between two searches of all processes for the files of suspects, and between two checks of all
  // clients before a program is refused memory.
  static constexpr Nanos kSearchInterval = 50 * kMillisecond;
  static constexpr Nanos kCheckInterval = kSecond;

  // The file on which a client can be reached, and the listener behind which it was made.
  struct Holder {
    HeldFile file;
    std::uint64_t tree = 0;
    bool unlisted = false;  // of a record, and there was no room for its process in the table
  };

  Clients(SupervisorHooks hooks, KernelBoundary& boundary, TreeRecord& record, Processes processes)
      : hooks_(std::move(hooks)),
        boundary_(boundary),
        record_(record),
        processes_(std::move(processes)),
        objects_(&record) {}
  void Restore();
  void SetHolder(std::uint32_t client, pid_t owner, const Holder& holder);

  const Processes::Process* Caller(const GateCall& call);
  // Empty: there are no free descriptors to ask with, or its process has no place in the table.
  std::optional<bool> HolderAnswers(std::uint32_t client);
  void CheckClients(std::vector<std::uint32_t> clients);
  void TakeEnded();
  void End(std::uint32_t client);
  void Apply(const MemoryObjects::Changes& changes);

  SupervisorHooks hooks_;
  KernelBoundary& boundary_;
  TreeRecord& record_;
  Processes processes_;
  MemoryObjects objects_;
  std::unordered_map<std::uint32_t, Holder> holders_;  // of the clients in objects_
  std::vector<std::uint32_t> suspects_;                // clients whose file may be closed: another process may hold it
  Nanos last_search_ = 0, last_check_ = 0;
};

}  // namespace tessera::guard
