#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sched/token_scheduler.h"
#include "server/shared_page.h"

namespace tessera::server {

// The gate of one process on one GPU, as the daemon knows it. docs/protocol.md tells the conversation.
struct Gate {
  enum class State {
    kParked,    // nothing queued: its page is closed and the next submission sends Wants
    kWanting,   // a submission waits for the token
    kRunning,   // open
    kDraining,  // closed by a revocation, Released is awaited
  };
  explicit Gate(SharedPage& page) : page(page) {}
  SharedPage& page;
  State state = State::kParked;
  std::uint32_t closing_epoch = 0;  // of the order that began kDraining
  Nanos opened_at = 0;
  struct Turn* turn = nullptr;  // of its vGPU; null before Join and after the vGPU is gone
};

// Executes the decisions of one GPU's token scheduler on the gates of the processes, and tells the scheduler what the
// processes of each vGPU do together: a vGPU wants when one of them does, is idle or released when all are.
//
// An open order is always the answer to a Wants; who sent none stays closed. So a process that parks itself while an
// order is on its way cannot take that order for a later permission.
class TokenServer {
 public:
  using Id = sched::VgpuId;
  enum class Token { kIdle, kWaiting, kHeld };

  // `in_flight` bounds what a process may have queued while others wait.
  TokenServer(const sched::Config& config, Nanos in_flight);
  ~TokenServer();

  Result<void> Add(Id vgpu, const sched::Shares& shares);
  Result<void> Update(Id vgpu, const sched::Shares& shares, Nanos now);
  // Closes the gates that are left, for good.
  void Remove(Id vgpu, Nanos now);

  void Join(Id vgpu, Gate& gate);
  void Leave(Gate& gate, Nanos now);  // also a process that died, in any state

  // What a process says. Nonsense is ignored, times are clipped to what can be true.
  void Wants(Gate& gate, Nanos now);
  void Idle(Gate& gate, Nanos now, Nanos since);
  void Released(Gate& gate, Nanos now, Nanos drained_at, std::uint32_t epoch);

  void Advance(Nanos now);
  void Freeze() { frozen_ = true; }  // from now on no gate changes
  Nanos NextDeadline() const { return scheduler_.NextDeadline(); }

  Token TokenOf(Id vgpu) const;
  sched::Usage UsageOf(Id vgpu, Nanos now) const { return scheduler_.UsageOf(vgpu, now); }
  std::optional<Id> Holder() const { return holder_; }

 private:
  void Open(Gate& gate, Nanos now);
  void OpenNext(Turn& turn, Nanos now);
  void Stopped(Gate& gate, Nanos now, Nanos at);
  void Grant(Turn& turn, const sched::Decision& decision, Nanos now);
  void Revoke(Turn& turn, Nanos now);
  void Settle(Turn& turn, Nanos now);
  void Execute(Nanos now);

  sched::TokenScheduler scheduler_;
  const Nanos in_flight_;
  std::unordered_map<Id, std::unique_ptr<Turn>> turns_;
  bool frozen_ = false;
  std::optional<Id> holder_;  // who was granted the token last, until it is idle or revoked
};

}  // namespace tessera::server
