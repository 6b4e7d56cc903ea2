#pragma once

#include <cstdint>

#include "base/clock.h"
#include "sched/residency/residency_plan.h"
#include "server/swap/mover_link.h"
#include "server/swap/residency_host.h"

namespace tessera::server {

// Carries out what a plan says of processes: stops them and lets them go on, gives and takes room, orders moves. Notes
// it in their Residence, and in the debug log. Runs on the loop's thread.
class ResidencyActions {
 public:
  // Both outlive the object. `file`: there is a swap file.
  ResidencyActions(const ResidencyHost& host, MoverLink& link, bool file) : host_(host), link_(link), file_(file) {}

  // `process` is the one that the action names. An order that no mover hears is left out.
  void Do(const sched::ResidencyAction& action, Process& process, Nanos now);

  // The process may have so much more, and takes it at once.
  static void AddRoom(Process& process, std::uint64_t bytes);
  // The same in advance: it finds that in its credit.
  static void AddCredit(Process& process, std::uint64_t bytes);
  // Takes the credit back that it has not used.
  static void RevokeCredit(Process& process);

 private:
  void Stop(Process& process, Nanos now);
  void Run(Process& process, Nanos now);
  void Thaw(Process& process, Nanos now);
  void FreePeers(Process& process, Nanos now);
  bool Order(Process& process, sched::Moving moving, std::uint64_t bytes, Nanos now, std::uint64_t other = 0);
  void Relocate(const Process& process);
  std::uint64_t HowOut(const Process& process, std::uint64_t bytes) const;
  static void Grant(Process& process, std::uint64_t bytes, Nanos now);

  const ResidencyHost& host_;
  MoverLink& link_;
  const bool file_;
};

}  // namespace tessera::server
