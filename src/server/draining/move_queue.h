#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"
#include "server/migration/migrations.h"

namespace tessera::server {

// Migrations that wait for others: kAtOnce of them go at a time, as each takes bandwidth and a process that makes the
// driver's calls. What cannot begin when its turn comes has VGpu::migrate_error then. Runs on the loop's thread.
class MoveQueue {
 public:
  static constexpr std::size_t kAtOnce = 4;

  // All outlive the object.
  MoveQueue(EventLoop& loop, VGpuTable& table, Migrations& migrations)
      : table_(table), migrations_(migrations), timer_(loop, [this] { Step(MonotonicNow()); }) {}
  MoveQueue(const MoveQueue&) = delete;

  // Those that go together. Nothing is done for one of whose vGPUs there is one here already.
  void Add(std::vector<VGpuMove> together, Nanos now);
  // Takes those out that have not begun and are from this GPU.
  void Drop(std::uint32_t gpu);
  // It waits here, or is on its way.
  bool Moves(VgpuId vgpu) const { return TargetOf(vgpu).has_value(); }
  // Where it will be then; nullopt: it does not move.
  std::optional<std::uint32_t> TargetOf(VgpuId vgpu) const;

 private:
  using Together = std::vector<VGpuMove>;

  bool UnderWay(const Together& together) const;
  void Step(Nanos now);

  VGpuTable& table_;
  Migrations& migrations_;
  std::deque<Together> waiting_;
  std::vector<Together> begun_;
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
