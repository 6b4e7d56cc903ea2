#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>

#include "base/clock.h"
#include "mover/pool/grower.h"
#include "mover/pool/lent_slots.h"
#include "mover/pool/pool_growth.h"
#include "mover/pool/slot_claims.h"
#include "mover/program/program.h"

namespace tessera::mover {

// The mover's loop. Handles what the daemon wishes, what programs say, and what copies, the disk and the growth of the
// pool have come to, on one thread that waits for none of them alone.
class Mover {
 public:
  // `daemon`: the socket of wire/mover.h. `machine`: what is known of the machine's memory now; any thread. `slots`:
  // the pool's table. `file`: the pool's second tier, if it has one. `patience`: how long a program may take for an
  // answer; others wait for it a tenth of that.
  Mover(Gpu& gpu, UniqueFd daemon, std::function<MachineMemory()> machine, KeyTable slots,
        std::optional<SwapFile> file = {}, Nanos patience = kPatience);

  // Runs until the daemon closes its end, or the GPU can no longer be used (an error).
  Result<void> Run();

  // After Run, when the daemon has ended. Lets go of all programs, which may claim what they have from another mover,
  // and waits until nothing is written to slots or to the file any more, for 5 s at most.
  void Retire();

  // One turn, which waits at most `most` for something to happen. False: the daemon has closed its end.
  Result<bool> RunOnce(Nanos most);

 private:
  void Wait(Nanos most);
  void OnEvent(int fd, std::uint32_t events);
  void OnDaemon();
  void OnMessage(const wire::MoverMessage& message, UniqueFd fd);
  void OnGone(const wire::MoverMessage& message);
  void OnSlot(std::uint64_t number, UniqueFd fd);
  void AddSlot(HostMemory memory);
  void OnKept(const wire::MoverMessage& message);
  void OnShow(const wire::MoverMessage& message);
  bool Give(const wire::MoverMessage& message, int fd);
  void OnGrown(Grower& grower);
  Result<void> FinishCopies();
  Demand DemandOfAll() const;
  void GrowOrStarve();
  void Start(Grower& grower, PoolGrowth::Job job);
  PoolGrowth::Job Ahead(const Grower& grower, const Demand& demand);
  bool FileCold(const Demand& demand);
  void OnFileOf(std::uint64_t program, UniqueFd fd);
  void OnProgram(const wire::MoverMessage& message, UniqueFd fd);
  void Report();
  void ReportMachine();
  std::shared_ptr<Program> ByFd(int fd) const;

  Gpu& gpu_;
  UniqueFd epoll_;
  PacketSocket daemon_;
  bool daemon_gone_ = false;
  KeyTable slots_;
  Pool pool_;
  SlotClaims claims_;
  PoolGrowth growth_;
  Copier copier_;
  std::optional<SwapFile> file_;
  Workplace place_;
  LentSlots lent_;
  std::map<std::uint64_t, std::shared_ptr<Program>> programs_;  // by the daemon's number
  std::map<std::uint64_t, Domain> domains_;                     // of these
  // Files of programs that the daemon introduces next.
  std::map<std::uint64_t, std::shared_ptr<SuspendedFile>> files_of_;

  int stopped_because_ = 0;   // errno value of why the pool did not grow when it last should have
  Nanos resume_at_ = kNever;  // when it may try again
  wire::MoverMessage reported_pool_{}, reported_file_{};  // as the daemon was told last
  Nanos report_at_ = 0;                                   // when the daemon may be told again
  bool report_due_ = false;
  const std::function<MachineMemory()> machine_;
  wire::MoverMessage reported_machine_{};
  Nanos look_at_machine_ = 0;
  Nanos prepare_at_ = kNever;  // when the next slot may be made ahead of need

  // Last: their threads use the GPU until they have ended.
  std::unique_ptr<Disk> disk_;     // null when the daemon has ended
  std::array<Grower, 2> growers_;  // the second one is the one that prepares
};

}  // namespace tessera::mover
