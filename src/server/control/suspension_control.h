#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "server/daemon/control.h"
#include "server/daemon/report.h"
#include "server/migration/migration.h"

namespace tessera::server {

// What moves, and how long that takes if so many rounds of moves come one after the other. On the loop's thread; the
// vGPUs are there.
MigrationReport ReportMigration(Daemon& daemon, const std::vector<VGpuMove>& moves, std::size_t rounds = 1);

// Suspensions and migrations as faces use them for one caller, as Control does the rest: each call runs on the event
// loop and waits for it, and begins what takes longer; reports of processes and vGPUs say how far that is. Users move
// their own programs, operators all. ESHUTDOWN when the loop ends before that.
class SuspensionControl {
 public:
  // The control outlives the object.
  explicit SuspensionControl(Control& control) : control_(control) {}

  // A program, or each one that is in the vGPU now. Those that are there already are left alone.
  Result<std::vector<SuspensionReport>> Suspend(const Control::Subject& subject, Suspensions::To to);
  Result<std::vector<SuspensionReport>> Resume(const Control::Subject& subject);
  // A vGPU with its programs, to one GPU; or a program with its vGPUs, which have no other programs, in the order of
  // their GPUs. `gpus`: indices or UUIDs. `dry`: only says what would be done. Errors as Migration::Check.
  Result<MigrationReport> Migrate(const Control::Subject& subject, const std::vector<std::string>& gpus, bool dry);

 private:
  Result<std::vector<pid_t>> ProgramsOf(const Control::Subject& subject, Operation operation) const;
  Result<std::vector<VGpuMove>> MovesOf(const Control::Subject& subject, const std::vector<std::string>& gpus) const;
  template <typename Task>
  std::invoke_result_t<Task, Nanos> OnLoop(Task task);

  Control& control_;
};

}  // namespace tessera::server
