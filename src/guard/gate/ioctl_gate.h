#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "guard/gate/clients.h"
#include "guard/gate/gate_call.h"
#include "guard/gate/hooks.h"
#include "guard/gate/kernel_boundary.h"
#include "guard/gate/proxied_call.h"
#include "guard/request/refusals.h"
#include "guard/request/requests.h"

namespace tessera::guard {

// The checks on ioctl requests to NVIDIA's driver (NV_ESC_RM_*) that wait behind the gate: each is passed to the
// kernel, made in the program's place, answered or refused. Used by the Supervisor's thread only. The seccomp side of
// things (listeners) is the supervisor's.
//
// A call that passes is made by the program's own thread with what its memory holds then: another thread may have
// changed it since it was checked. So a program that races with itself may make a control that is refused otherwise, or
// turn an allocation that passes into one of memory. It cannot change a call that is made here.
class IoctlGate {
 public:
  using Call = GateCall;
  using Answer = GateAnswer;
  struct Counts {
    std::uint64_t passed = 0, executed = 0, refused = 0, out_of_memory = 0;
    std::uint64_t unknown = 0;  // requests of the driver in a size that this code does not know, which passed
  };

  // `record`: of the tree, with the call in hand. `boundary` and `record` outlive the object.
  static Result<IoctlGate> Create(SupervisorHooks hooks, SupervisorOptions options, KernelBoundary& boundary,
                                  TreeRecord& record);

  // The call in hand of the record. It may have been made already, by the daemon before this one.
  Answer Serve(const Call& call, const StillWaits& waits);
  // Whether the caller took the answer. If not, it was killed meanwhile, and the object that was made for it is freed.
  void Done(bool given);

  // The last process behind a listener is gone.
  void TreeEnded(std::uint64_t tree);

  // To be called when EndedFd is readable, and when NextCheck (CLOCK_MONOTONIC; kNever) has come.
  void Check();
  int EndedFd() const { return clients_.EndedFd(); }
  Nanos NextCheck() const { return std::min(clients_.NextCheck(), refusals_.NextDue()); }

  const Counts& Total() const { return counts_; }

 private:
  static constexpr std::size_t kMostUnknown = 16;  // that are told
  // An object that was made for a caller that has not been told yet.
  struct Made {
    UniqueFd file;
    std::uint32_t client = 0, parent = 0, object = 0;
  };
  IoctlGate(SupervisorHooks hooks, SupervisorOptions options, KernelBoundary& boundary, TreeRecord& record,
            Clients clients)
      : hooks_(std::move(hooks)),
        options_(options),
        boundary_(boundary),
        hand_(record.Call()),
        clients_(std::move(clients)) {}

  Answer ServeUnknown(const Call& call, const StillWaits& waits);
  Answer ServeDisplay(const Call& call, const StillWaits& waits);
  bool ReadArgument(const Call& call, std::uint32_t bytes);
  Answer Act(const Call& call, const Request& request, const Decision& decision, const StillWaits& waits);
  Answer Pass();
  Answer Refuse(const Call& call, int error, std::string_view why);
  void TellLeftOut(const Refusals::LeftOut& left_out);

  // ioctl_gate_calls.cc: the calls that are counted.
  Answer Allocate(ProxiedCall& proxied, bool is_memory);
  Answer AllocateHere(ProxiedCall& proxied, Clients::Loan loan, bool is_memory, pid_t owner, std::uint32_t device,
                      std::uint64_t bytes);
  Answer CountOnly(const ProxiedCall& proxied, std::uint64_t bytes);
  Answer Free(ProxiedCall& proxied);
  Answer Dup(ProxiedCall& proxied);
  Answer StopOwnChannels(ProxiedCall& proxied, const Decision& decision);
  Answer Execute(ProxiedCall& proxied, const Clients::Loan& loan);
  Answer OutOfMemory(const ProxiedCall& proxied);
  void ForgetMade(const ProxiedCall& proxied);
  MemoryObjects::Handle Named(const Request& request);

  SupervisorHooks hooks_;
  SupervisorOptions options_;
  KernelBoundary& boundary_;
  CallInHand& hand_;
  Clients clients_;
  std::uint64_t last_unnamed_ = std::uint64_t{1} << 32;  // handles beyond RM's, for objects whose handle is not known
  std::optional<Made> made_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> unknown_;  // numbers and sizes that were told
  Refusals refusals_;
  Counts counts_;
};

}  // namespace tessera::guard
