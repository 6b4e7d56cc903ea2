#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "guard/gate/borrowed_file.h"
#include "guard/gate/hooks.h"
#include "guard/gate/kernel_boundary.h"
#include "guard/gate/processes.h"
#include "guard/request/memory_objects.h"
#include "guard/request/refusals.h"
#include "guard/request/requests.h"

namespace tessera::guard {

// Decides what becomes of the ioctls that wait behind the gate, and keeps the books about all programs that are behind
// it. Used by the Supervisor's thread only. The seccomp side of things (listeners) is the supervisor's.
//
// A client belongs to the process that used it first. That it does is not taken from the program's word: the driver
// knows a client only on the file that made it, so the gate asks on the program's own file.
//
// What passes is done by the program's own thread with what its memory holds then: another thread may have changed it
// since it was looked at. So a program that races with itself may make a control that is refused otherwise, or turn
// an allocation that passes into one of memory. What is executed here it cannot change.
class IoctlGate {
 public:
  struct Call {
    pid_t tid = 0;           // the thread that waits
    std::uint64_t tree = 0;  // the listener it waits behind
    int fd = -1;             // arguments of ioctl(2)
    std::uint64_t request = 0;
    std::uint64_t address = 0;
    bool foreign = false;  // made by a system call of another architecture
  };
  struct Answer {
    bool pass = false;  // let the kernel go on with the call
    int result = 0;     // else: 0 or a negative errno value
  };
  struct Counts {
    std::uint64_t passed = 0, executed = 0, refused = 0, out_of_memory = 0;
  };
  // Whether the caller still waits: if not, `tid` may be somebody else's by now.
  using Waiting = std::function<bool()>;

  static Result<IoctlGate> Create(SupervisorHooks hooks, SupervisorOptions options, KernelBoundary& boundary);

  Answer Serve(const Call& call, const Waiting& waiting);
  // What became of the answer. Not given: the caller was killed meanwhile, and what was made for it is freed.
  void Done(bool given);

  // The last process behind a listener is gone.
  void TreeEnded(std::uint64_t tree);

  // To be called when EndedFd is readable, and when NextCheck (CLOCK_MONOTONIC; kNever) has come.
  void Check();
  int EndedFd() const { return processes_.EndedFd(); }
  Nanos NextCheck() const {
    const Nanos search = suspects_.empty() ? kNever : last_search_ + kSearchInterval;
    return std::min(search, refusals_.NextDue());
  }

  const Counts& Total() const { return counts_; }

 private:
  static constexpr std::size_t kMostParamBytes = 4096;
  static constexpr std::size_t kMostClientsPerProcess = 256;
  static constexpr std::uint64_t kMostMemoryBytes = 1ULL << 48;
  // How often all processes are searched for the files of clients that have lost theirs, and how often all clients are
  // asked whether they live before a program is refused memory.
  static constexpr Nanos kSearchInterval = 50 * kMillisecond;
  static constexpr Nanos kCheckInterval = kSecond;

  // Where a client can be reached, and behind which listener it was made.
  struct Holder {
    HeldFile file;
    std::uint64_t tree = 0;
  };
  // The caller, and a duplicate of the file that it makes its call on.
  struct Loan {
    pid_t pid = 0;
    UniqueFd file;
    int error = 0;  // not 0: neither
  };
  // An object that was made for a caller that does not know yet.
  struct Made {
    UniqueFd file;
    std::uint32_t client = 0, parent = 0, object = 0;
  };
  using Argument = std::span<std::byte>;

  IoctlGate(SupervisorHooks hooks, SupervisorOptions options, KernelBoundary& boundary, Processes processes)
      : hooks_(std::move(hooks)), options_(options), boundary_(boundary), processes_(std::move(processes)) {}

  // gate.cc
  Answer Act(const Call& call, const Request& request, const Decision& decision, Argument argument,
             const Waiting& waiting);
  Answer Refuse(const Call& call, int error, std::string_view why);
  Answer WriteStatus(const Call& call, const Request& request, std::uint32_t status, const Waiting& waiting);
  Loan Lend(const Call& call, const Waiting& waiting);
  const Processes::Process* Caller(const Call& call);
  void TellLeftOut(const Refusals::LeftOut& left_out);

  // gate_calls.cc
  Answer Allocate(const Call& call, const Request& request, bool is_memory, Argument argument, const Waiting& waiting);
  Answer Execute(const Call& call, const Request& request, const Loan& loan, Argument argument, std::uint32_t* status,
                 const Waiting& waiting);
  bool CopyParams(const Call& call, const Request& request);
  std::uint32_t InstanceOf(const Request& request) const;
  Answer OutOfMemory(const Call& call, const Request& request, const Waiting& waiting);
  Answer CountOnly(const Call& call, const Request& request, pid_t owner, std::uint64_t bytes);
  Answer Free(const Call& call, const Request& request, Argument argument, const Waiting& waiting);
  Answer Dup(const Call& call, const Request& request, Argument argument, const Waiting& waiting);
  Answer StopOwnChannels(const Call& call, const Request& request, const Decision& decision, Argument argument,
                         const Waiting& waiting);
  void Tell(const Call& call, const Request& request, pid_t owner, std::uint32_t object);
  void Freed(std::uint32_t client, std::uint32_t object);

  // gate_clients.cc
  // The process whose client it is, if the caller may use it.
  std::optional<pid_t> OwnerOf(const Loan& loan, const Call& call, std::uint32_t client);
  bool Answers(int file, std::uint32_t client);
  // Empty: there are no free descriptors to ask with.
  std::optional<bool> HolderAnswers(std::uint32_t client);
  void CheckClients(std::vector<std::uint32_t> clients);
  void TakeEnded();
  void CheckEnded();
  void End(std::uint32_t client);
  bool Charge(pid_t pid, std::uint32_t device, std::uint64_t bytes);
  void Apply(const MemoryObjects::Changes& changes);

  SupervisorHooks hooks_;
  SupervisorOptions options_;
  KernelBoundary& boundary_;
  Processes processes_;
  MemoryObjects memory_;
  std::unordered_map<std::uint32_t, Holder> holders_;  // of the clients in memory_
  std::vector<std::uint32_t> suspects_;                // clients whose file may be gone: somebody may hold it
  Nanos last_search_ = 0, last_check_ = 0;
  std::uint64_t last_unnamed_ = std::uint64_t{1} << 32;  // handles beyond RM's, for objects of which it is not known
  std::optional<Made> made_;
  Refusals refusals_;
  Counts counts_;

  // Copies of the caller's parameters: as they were, and as the driver left them.
  std::array<std::byte, kMostParamBytes> params_before_{}, params_{};
  std::size_t params_bytes_ = 0;
};

}  // namespace tessera::guard
