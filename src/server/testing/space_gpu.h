#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "server/testing/steered_gpu.h"

namespace tessera::server {

// The steered GPU, with vGPUs in space 1. Its MPS server is a process whose channels are known as a program's are.
class SpaceGpuTest : public SteeredGpuTest {
 protected:
  static constexpr std::uint32_t kSpace = 1;
  static constexpr pid_t kServer = 600'000'000;  // beyond any that exists

  static sched::Shares InSpace(double sm_pct, sched::Shares shares = {}, std::uint32_t space = kSpace) {
    shares.space = {.number = space, .sm_pct = sm_pct};
    return shares;
  }
  // A vGPU of these shares that is admitted; null: it is not, and `refusal_` says why.
  VGpu* Add(const sched::Shares& shares) {
    VGpu& vgpu = others_.emplace_back();
    vgpu.id = static_cast<VgpuId>(2 + others_.size());
    vgpu.spec.compute = shares;
    vgpu.spec.space = shares.space.number == 0 ? "" : "a";
    auto added = gpu_.Add(vgpu, Now());
    if (added) return &vgpu;
    refusal_ = added.error();
    others_.pop_back();
    return nullptr;
  }
  VGpu& InSpaceOf(double sm_pct, sched::Shares shares = {}) { return *Add(InSpace(sm_pct, shares)); }

  Result<void> Change(VGpu& vgpu, const sched::Shares& shares) {
    return gpu_.Resize(vgpu, vgpu.spec.memory, shares, vgpu.spec.goal, Now());
  }

  // The space has this MPS server from now on, with a context of its own.
  void StartServer(pid_t pid = kServer, std::uint32_t space = kSpace) {
    channels_.SetServer(space, pid);
    for (const auto& event : ContextEvents(ServersClient(pid))) channels_.Observe(pid, event, kShim, Now());
    gpu_.Time().ChannelsChanged(pid, Now());
  }
  void EndServer(std::uint32_t space = kSpace) {
    channels_.SetServer(space, 0);
    gpu_.Time().ChannelsChanged(0, Now());
  }
  static std::uint32_t ServersClient(pid_t pid) { return 0xc2d00000 + (pid & 0xffff); }
  bool ServerFrozen(pid_t pid = kServer) const { return control_->frozen.contains({ServersClient(pid), 10}); }
  bool Open(const Member& member) const {
    return member.Order() == wire::GateOrder::kOpen || member.Order() == wire::GateOrder::kBounded;
  }

  // As a program does whose gate has closed: what it had queued has ended, and it wants more.
  void Drains(Member& member) { gpu_.Time().Released(member.process, now_, member.process.page.Epoch(), Now()); }

  TimeControl::Figures FiguresOf(const VGpu& vgpu) { return gpu_.Time().FiguresOf(vgpu, now_); }

  static constexpr auto kShim = ChannelServer::Source::kShim;
  Error refusal_;
};

}  // namespace tessera::server
