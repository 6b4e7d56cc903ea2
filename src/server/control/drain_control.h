#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/daemon/control.h"
#include "server/daemon/report.h"
#include "server/draining/drains.h"

namespace tessera::server {

// Draining and making room as faces use them for one caller, as Control does the rest: each call runs on the event loop
// and waits for it, and begins what takes longer; reports of GPUs and vGPUs say how far that is. For operators alone.
// ESHUTDOWN when the loop ends before that.
class DrainControl {
 public:
  // The control outlives the object.
  explicit DrainControl(Control& control) : control_(control) {}

  // The GPU, by index or UUID, takes no newcomers, and what can move goes to others. `dry`: only says what would be
  // done. Returns when the next daemon knows of it.
  Result<RehomingReport> Drain(const std::string& gpu, bool dry);
  Result<void> Undrain(const std::string& gpu);
  // Moves vGPUs, so that a GPU has room for a vGPU of this request, of which memory_request and compute_request count.
  // ENOSPC: no moves make room, with the reason of each GPU.
  Result<RehomingReport> MakeRoom(const VGpuRequest& request, bool dry);
  // As Control::Create, for any caller. With rebalance.auto, where promises fit on no GPU and would after moves, makes
  // these first and waits for them: kMostWait at most, and for one caller at a time; others get the refusal at once.
  Result<VGpuReport> Create(const VGpuRequest& request);

  static constexpr Nanos kMostWait = 20 * kSecond;

 private:
  template <typename Task>
  std::invoke_result_t<Task, Nanos> OnLoop(Task task);
  Result<std::uint32_t> Named(const std::string& gpu) const;
  std::vector<VgpuId> BeginRoomFor(const VGpuRequest& request, Nanos now) const;
  bool AwaitMoves(const std::vector<VgpuId>& vgpus) const;
  RehomingReport Report(const MovePlan& plan, std::uint32_t gpu) const;

  Control& control_;
};

}  // namespace tessera::server
