#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "server/model/ledger.h"
#include "server/model/memory_use.h"

namespace tessera::server {

// Serves the memory of one GPU to processes: reservations with credit, contexts, the view in their pages. The rules are
// in docs/protocol.md, the figures in Ledger.
class MemoryServer {
 public:
  struct Figures {
    std::uint64_t max = 0, current = 0, peak = 0, available = 0, oom_events = 0;
  };

  // Reads the messages that wait on the sockets of the processes of this vGPU, or of all with nullopt. They may free
  // memory; called before somebody is refused.
  using ReadPending = std::function<void(std::optional<VgpuId>, Nanos now)>;

  // `context_bytes` is what a context is charged until a measurement says that it is more.
  MemoryServer(class Ledger ledger, std::uint64_t context_bytes);
  void OnShortage(ReadPending read_pending) { read_pending_ = std::move(read_pending); }

  // Ledger::Set.
  Result<void> Set(VgpuId id, const MemoryTerms& terms);
  void Close(VgpuId id);  // when no process is left

  // `bytes` and `contexts` are what the process holds already, after a reconnect: accepted as it says, up to what
  // GPU and swap hold together.
  void Join(VgpuId id, MemoryUse& use, std::uint64_t bytes, std::uint32_t contexts);
  void Leave(MemoryUse& use);

  // Requests of a process. Each returns the bytes that were charged: those that were asked for, or 0.
  std::uint64_t Reserve(MemoryUse& use, std::uint64_t bytes, Nanos now);
  void Return(MemoryUse& use, std::uint64_t bytes);
  // Whether host memory still holds what the programs have, with the blank slots of their pages; kNo counts as a
  // refusal. kAskAgain: it would, were it not for what others plan, which may be refused in its turn. A use is told so
  // once, and then yes or no.
  enum class BlankAnswer { kYes, kNo, kAskAgain };
  BlankAnswer HasPlaceForBlank(MemoryUse& use, Nanos now);
  // Whether AddContext would charge one now; else it counts as a refusal.
  bool HasPlaceForContext(const MemoryUse& use, Nanos now);
  std::uint64_t AddContext(MemoryUse& use, Nanos now);
  void DropContext(MemoryUse& use);

  // Before Count: where the vGPU has no room for `bytes` more, reads what its programs have said of memory that they
  // free. That may end any of them.
  void Collect(VgpuId id, std::uint64_t bytes, Nanos now);
  // The kernel gate counts `bytes` of the process in all: what that is more than it is charged for is charged now.
  // False if it may not have that; then nothing changes.
  bool Count(MemoryUse& use, std::uint64_t bytes);
  // The same of what it has already, room or not.
  void CountAnyway(MemoryUse& use, std::uint64_t bytes);

  // Takes the device's figure of a process: after MemoryUse::BeginMeasurement, because programs go on while the device
  // is asked. Memory beyond all that the process can have been charged for is charged now.
  void Reconcile(MemoryUse& use, std::uint64_t measured);

  // The verdict of the last measurement on a process behind the kernel gate.
  enum class Excess {
    kNone,
    kUnclear,  // it has too much, but its vGPU was granted more than it may have now: the limit was lowered
    kStolen,   // it has more than was granted and a driver needs for itself, and because of that its vGPU has too much
  };
  Excess ExcessOf(const MemoryUse& use) const;

  Figures FiguresOf(VgpuId id) const;
  std::uint64_t ContextBytes() const { return context_bytes_; }
  const class Ledger& Ledger() const { return ledger_; }

 private:
  struct Account {
    std::vector<MemoryUse*> uses;
    std::uint64_t peak = 0;
    std::uint64_t oom_events = 0;
  };
  bool Charge(VgpuId id, std::uint64_t bytes, Nanos now);
  static std::uint64_t Beyond(const MemoryUse& use, std::uint64_t counted);
  void SetCounted(MemoryUse& use, std::uint64_t bytes);
  void KeepCounted(MemoryUse& use);
  void ReadBlank(const MemoryUse* only_planned_by = nullptr);
  void ReadWhatWaits(std::optional<VgpuId> only, Nanos now);
  void TakeBackCredits(std::optional<VgpuId> only);
  void Grown(MemoryUse& use);
  void Publish();
  std::optional<VgpuId> WhoIsShort(VgpuId id, std::uint64_t bytes) const;

  class Ledger ledger_;
  const std::uint64_t first_context_bytes_;
  std::uint64_t context_bytes_;
  ReadPending read_pending_;
  bool collecting_ = false;  // inside read_pending_
  std::unordered_map<VgpuId, Account> accounts_;
};

}  // namespace tessera::server
