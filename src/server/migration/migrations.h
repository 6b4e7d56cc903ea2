#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/checkpoint/suspensions.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"
#include "server/migration/migration.h"

namespace tessera::server {

// The migrations that are under way. Runs on the loop's thread.
class Migrations {
 public:
  // All outlive the object.
  Migrations(EventLoop& loop, VGpuTable& table, const VGpuTable::Gpus& gpus, Suspensions& suspensions,
             Migration::Means means);
  Migrations(const Migrations&) = delete;

  // Whether it could begin: Migration::Check, and EBUSY where one of the vGPUs is on its way already.
  Result<void> Check(const std::vector<VGpuMove>& moves) const;
  Result<void> Begin(const std::vector<VGpuMove>& moves, Nanos now);
  // Null: the vGPU is not on its way.
  const Migration* Find(VgpuId vgpu) const;
  // A migration takes the program along. Nobody else may suspend or resume it then.
  bool Carries(pid_t pid) const;
  // False: no migration takes the program along. Else it comes back as soon as its vGPU is on the other GPU, or has
  // turned out to stay.
  bool BringBack(pid_t pid, Nanos now);
  bool Any() const { return !migrations_.empty(); }

 private:
  std::unique_ptr<Migration> Make(const std::vector<VGpuMove>& moves) const;
  void Step();

  VGpuTable& table_;
  const VGpuTable::Gpus& gpus_;
  Suspensions& suspensions_;
  const Migration::Means means_;
  std::vector<std::unique_ptr<Migration>> migrations_;
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
