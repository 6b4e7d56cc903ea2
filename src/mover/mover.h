#pragma once

#include <functional>
#include <map>
#include <memory>

#include "base/clock.h"
#include "mover/pool/grower.h"
#include "mover/program/program.h"

namespace tessera::mover {

// The loop: what the daemon wishes, what programs say, what copies and the growth of the pool have come to. On one
// thread, and it waits for none of them.
class Mover {
 public:
  // `daemon`: the socket of wire/mover.h. `may_grow`: as Grower's. `slots`: the pool's table. `file`: the pool's second
  // tier, if it has one. `patience`: with programs, for an answer; others wait for them a tenth of it.
  Mover(Gpu& gpu, UniqueFd daemon, std::function<Result<void>()> may_grow, KeyTable slots,
        std::optional<SwapFile> file = {}, Nanos patience = kPatience);

  // Until the daemon closes its end, or the GPU is of no use any more.
  Result<void> Run();

  // The daemon has ended. Lets go of all programs, which may claim what they have of another mover, and waits until
  // nothing is written to slots or the file any more. False: it does not end, or nobody has anything here.
  bool Retire();
  // Whether anybody still has something in the pool or in the file, after that.
  bool IsNeeded();
  // The slots: numbers and descriptors.
  std::vector<std::pair<std::uint64_t, int>> Slots() const { return pool_.Memories(); }

  // One turn, which waits for at most `most` for something to happen. False when the daemon has closed its end.
  Result<bool> RunOnce(Nanos most);

 private:
  void Wait(Nanos most);
  void OnEvent(int fd, std::uint32_t events);
  void OnDaemon();
  void OnMessage(const wire::MoverMessage& message, UniqueFd fd);
  void OnSlot(std::uint64_t number, UniqueFd fd);
  void TellSlot(Slot slot);
  void OnGrown();
  Result<void> FinishCopies();
  Demand DemandOfAll() const;
  void GrowOrStarve();
  bool FileCold(const Demand& demand);
  void OnDisk();
  void Report();
  std::shared_ptr<Program> ByFd(int fd) const;

  Gpu& gpu_;
  UniqueFd epoll_;
  PacketSocket daemon_;
  bool daemon_gone_ = false;
  Pool pool_;
  Copier copier_;
  std::optional<SwapFile> file_;
  Workplace place_;
  std::map<std::uint64_t, std::shared_ptr<Program>> programs_;  // by the daemon's number

  int stopped_because_ = 0;   // errno value of why the pool did not grow when it last should have
  Nanos resume_at_ = kNever;  // when it may try again
  wire::MoverMessage reported_pool_{}, reported_file_{};  // as they were told last
  Nanos report_at_ = 0;                                   // when the next one may be sent
  bool report_due_ = false;

  std::unique_ptr<Disk> disk_;  // null without a file. Its thread uses the GPU until it has ended, and so does
  Grower grower_;               // the grower's
};

}  // namespace tessera::mover
