#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "server/daemon/control.h"
#include "server/daemon/report.h"

namespace tessera::server {

// What a caller may see of everything. Not of one moment: its parts were looked at shortly after one another, so a
// process may be missing that its vGPU names.
struct Overview {
  std::vector<GpuReport> gpus;  // empty for users where access.totals is off
  std::vector<SpaceReport> spaces;
  std::vector<VGpuReport> vgpus;
  std::vector<ProcessReport> processes;
};

// Overviews of the daemon for one caller, for pages that ask again and again. The event loop is asked in pieces of some
// ten microseconds, so that what it schedules need not wait for all of a long list. Any thread but the loop's.
class OverviewControl {
 public:
  // The control outlives the object.
  explicit OverviewControl(const Control& control) : control_(control) {}

  // `measure`: an operator's overview asks the devices first, which costs programs time (DeviceMeter). EPERM for users
  // where they may not use the API; ESHUTDOWN when the loop ends before the answer.
  Result<Overview> Look(bool measure) const;

 private:
  template <typename Task>
  std::invoke_result_t<Task> OnLoop(Task task) const;
  // Appends the vGPUs from `first` on, and their processes, until the piece is large enough. The place of the next.
  Result<std::size_t> AddPiece(const std::vector<std::string>& names, std::size_t first, Overview& overview) const;
  Result<std::vector<std::string>> Names() const;

  const Control& control_;
};

}  // namespace tessera::server
