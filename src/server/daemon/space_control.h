#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "server/daemon/control.h"
#include "server/daemon/report.h"

namespace tessera::server {

// The spaces of the daemon as faces use them for one caller, as Control does the rest: each call runs on the event loop
// and waits for it. Users see and change their own spaces, operators all. ESHUTDOWN when the loop ends before that.
class SpaceControl {
 public:
  // The control outlives the object.
  explicit SpaceControl(const Control& control) : control_(control) {}

  Result<std::vector<SpaceReport>> All() const;
  // ENOENT also for a space that the caller may not see.
  Result<SpaceReport> Named(const std::string& name) const;
  // Makes a space of the caller's that lasts. `gpu` as VGpuRequest::gpu. Returns when that is written. Errors: those of
  // SpaceTable::Create; EDQUOT; ENOENT: there is no such GPU.
  Result<SpaceReport> Create(const std::string& name, const std::optional<std::string>& gpu) const;
  // It ends, or does so with its last vGPU.
  Result<void> Remove(const std::string& name) const;

 private:
  bool MaySee(uid_t owner) const;
  template <typename Task>
  std::invoke_result_t<Task> OnLoop(Task task) const;
  // Waits until what was changed is written.
  Result<void> Change(std::function<Result<void>(Daemon&)> change) const;

  const Control& control_;
};

}  // namespace tessera::server
