#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/access/authority.h"
#include "server/gpu/gpu_server.h"
#include "server/loop/event_loop.h"
#include "server/model/vgpu.h"
#include "server/model/vgpu_request.h"
#include "server/spaces/space_table.h"
#include "server/state/state_file.h"

namespace tessera::server {

// Whether the vGPU's settings still have this tag, if one is given. ESTALE: somebody else has changed them.
Result<void> CheckTag(const VGpu& vgpu, const std::optional<std::string>& tag);

// All vGPUs of the machine by name, and who they belong to. Runs on the event loop's thread.
class VGpuTable {
 public:
  using Gpus = std::vector<std::unique_ptr<GpuServer>>;

  // `on_change` is called when what state.json keeps has changed, and `on_unlist` before a vGPU ends. The loop and the
  // GPUs outlive the table, and so do the spaces; without these no vGPU is in one.
  VGpuTable(EventLoop& loop, Gpus& gpus, std::function<void()> on_change,
            std::function<void(VGpu&, Nanos)> on_unlist = {}, SpaceTable* spaces = nullptr);

  // Says whether a vGPU may be as `spec` says, which it may complete; `before` is the vGPU as it is, null for a new
  // one.
  using Admission = std::function<Result<void>(VGpuSpec& spec, const VGpu* before)>;

  // Each failure says what and why and changes nothing. Without `admit`, all is admitted that the GPU can keep. EPERM
  // if whoever asks is no operator and the name is kept for them (IsForOperators).
  Result<VGpu*> Create(const VGpuRequest& request, uid_t uid, Nanos now, const Admission& admit = {},
                       bool by_operator = true);
  // ESTALE if somebody else has changed it: VGpuRequest::if_tag.
  Result<void> Change(VGpu& vgpu, const VGpuRequest& request, Nanos now, const Admission& admit = {},
                      bool by_operator = true);
  // EBUSY without force while it is in use; EPERM while the configuration declares it.
  Result<void> Remove(VGpu& vgpu, bool force, Nanos now, bool by_operator = true);
  // vGPUs have gone to other GPUs: what state.json keeps has changed.
  void HaveMoved() { on_change_(); }
  // Stops its processes, also those to come, or lets them go on; for its owner or for an operator. EPERM for an owner
  // where an operator has stopped them.
  Result<void> Freeze(VGpu& vgpu, bool frozen, bool by_owner, Nanos now);
  // The names that the configuration declares. Only operators make vGPUs of these names.
  void Declare(std::set<std::string> names) { declared_ = std::move(names); }
  // Makes a vGPU again as a daemon before this one had it. One whose GPU is not there, or whose promise cannot be kept
  // now, is absent: its name stays taken, and it is saved for a later daemon. ESRCH when its owner process is gone.
  Result<void> Restore(const SavedVGpu& saved, Nanos now);
  // All that the next daemon must know, those that are absent included.
  std::vector<SavedVGpu> Saved() const;

  VGpu* Find(std::string_view name) const;
  VGpu* Find(VgpuId id) const;
  std::vector<VGpu*> All() const;  // by name
  // The vGPUs that SplitNames reads in `text`, one for each GPU, if a program of the caller may join them. EACCES: one
  // of them has another key.
  Result<std::vector<VGpu*>> Choose(std::string_view text, const Authority& authority, const Caller& caller) const;

  GpuServer& Gpu(const VGpu& vgpu) const { return *gpus_[vgpu.gpu]; }

  // A program joined the vGPU or is gone. May destroy an ephemeral vGPU whose owner died, or one removed by force.
  void Joined(VGpu& vgpu) { ++vgpu.joined; }
  void Left(VgpuId id, Nanos now);

  bool AnyLivingOwner() const;

 private:
  Result<VGpu*> Get(std::string_view name) const;  // ENOENT in words
  Result<void> CheckNameFree(const std::string& name, uid_t uid, bool by_operator) const;
  bool IsForOperators(std::string_view name) const;
  std::vector<SavedVGpu>::const_iterator Absent(std::string_view name) const;
  Result<VGpu*> Place(VGpuSpec spec, std::uint32_t gpu, Nanos now, bool restored = false);
  Result<void> EnterSpace(VGpu& vgpu);
  std::string FreeName(std::string_view program) const;
  Result<void> WatchOwner(VGpu& vgpu);
  void OwnerDied(VgpuId id, Nanos now);
  void Unlist(VGpu& vgpu, Nanos now, bool by_operator = false);
  void Destroy(VGpu& vgpu);

  EventLoop& loop_;
  Gpus& gpus_;
  const std::function<void()> on_change_;
  const std::function<void(VGpu&, Nanos)> on_unlist_;
  SpaceTable* const spaces_;
  std::map<VgpuId, std::unique_ptr<VGpu>> vgpus_;
  std::map<std::string, VGpu*, std::less<>> by_name_;  // without those that were removed by force
  std::vector<SavedVGpu> absent_;
  std::set<std::string> declared_;
  VgpuId last_id_ = 0;
};

}  // namespace tessera::server
