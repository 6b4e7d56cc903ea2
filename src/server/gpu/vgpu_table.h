#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/gpu/gpu_server.h"
#include "server/loop/event_loop.h"
#include "server/model/vgpu.h"
#include "server/model/vgpu_request.h"

namespace tessera::server {

// Whether the vGPU's settings still have this tag, if one is given. ESTALE: somebody else has changed them.
Result<void> CheckTag(const VGpu& vgpu, const std::optional<std::string>& tag);

// All vGPUs of the machine by name, and who they belong to. Runs on the event loop's thread.
class VGpuTable {
 public:
  using Gpus = std::vector<std::unique_ptr<GpuServer>>;

  // `on_change` is called when what state.json keeps has changed. The loop and the GPUs outlive the table.
  VGpuTable(EventLoop& loop, Gpus& gpus, std::function<void()> on_change);

  // Each failure says what and why and changes nothing.
  Result<VGpu*> Create(const VGpuRequest& request, uid_t uid, Nanos now);
  // ESTALE if somebody else has changed it: VGpuRequest::if_tag.
  Result<void> Change(VGpu& vgpu, const VGpuRequest& request, Nanos now);
  Result<void> Remove(VGpu& vgpu, bool force, Nanos now);
  // An operator stops its processes, also those to come, or lets them go on.
  void Freeze(VGpu& vgpu, bool frozen, Nanos now);
  // Makes a vGPU again as a daemon before this one had it. ESRCH when its owner is gone.
  Result<void> Restore(VGpuSpec spec, std::uint32_t gpu, Nanos now);

  VGpu* Find(std::string_view name) const;
  VGpu* Find(VgpuId id) const;
  Result<VGpu*> Get(std::string_view name) const;  // ENOENT in words
  std::vector<VGpu*> All() const;                  // by name
  // The vGPUs of a comma-separated list of names, one for each GPU, if a program of this user may join them.
  Result<std::vector<VGpu*>> Choose(std::string_view names, uid_t uid) const;

  GpuServer& Gpu(const VGpu& vgpu) const { return *gpus_[vgpu.gpu]; }

  // A program joined the vGPU or is gone. May destroy an ephemeral vGPU whose owner died, or one removed by force.
  void Joined(VGpu& vgpu) { ++vgpu.joined; }
  void Left(VgpuId id, Nanos now);

  bool AnyLivingOwner() const;
  // Called before a vGPU ends.
  void OnUnlist(std::function<void(VGpu&, Nanos)> callback) { on_unlist_ = std::move(callback); }

 private:
  Result<VGpu*> Place(VGpuSpec spec, std::uint32_t gpu, Nanos now);
  Result<std::vector<std::uint32_t>> Candidates(const std::optional<std::string>& gpu) const;
  std::string FreeName(std::string_view program) const;
  Result<void> WatchOwner(VGpu& vgpu);
  void OwnerDied(VgpuId id, Nanos now);
  void Unlist(VGpu& vgpu, Nanos now);
  void Destroy(VGpu& vgpu);

  EventLoop& loop_;
  Gpus& gpus_;
  std::function<void()> on_change_;
  std::function<void(VGpu&, Nanos)> on_unlist_;
  std::map<VgpuId, std::unique_ptr<VGpu>> vgpus_;
  std::map<std::string, VGpu*, std::less<>> by_name_;  // without those that were removed by force
  VgpuId last_id_ = 0;
};

}  // namespace tessera::server
