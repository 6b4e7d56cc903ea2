#pragma once

#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "server/gpu/gpu_server.h"
#include "server/testing/context_events.h"
#include "server/testing/fake_control.h"
#include "server/testing/fake_driver.h"

namespace tessera::server {

// A GPU with the vGPUs high (priority 2) and low (12) and processes in them, whose channels a fake control steers.
class SteeredGpuTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kGroup = 3, kCopies = 4;
  static constexpr std::uint64_t kContext = 100 * kMiB;

  struct Member {
    Member(pid_t pid, VGpu& vgpu) : process(std::move(*SharedPage::Create(0)), pid), vgpu(vgpu) {}
    wire::GateOrder Order() const { return process.page->gate.load(); }
    Process process;
    VGpu& vgpu;
  };

  void SetUp() override {
    channels_.OnChange([this](pid_t pid, Nanos now) { gpu_.Time().ChannelsChanged(pid, now); });
    Make(high_, 1, 2);
    Make(low_, 2, 12);
  }
  void TearDown() override {
    for (auto& member : members_) {
      gpu_.Leave(member->process, Now());
      channels_.Forget(member->process.pid);
    }
  }

  void Make(VGpu& vgpu, VgpuId id, std::uint32_t priority) {
    vgpu.id = id;
    vgpu.spec.compute.priority = priority;
    ASSERT_TRUE(gpu_.Add(vgpu, Now()));
  }

  // One more vGPU, of this class.
  VGpu& Another(std::uint32_t priority) {
    Make(others_.emplace_back(), static_cast<VgpuId>(2 + others_.size()), priority);
    return others_.back();
  }

  Member& Join(VGpu& vgpu) {
    return Join(vgpu, static_cast<pid_t>(500'000'000 + members_.size()));  // beyond any that exists
  }
  Member& Join(VGpu& vgpu, pid_t pid) {
    members_.push_back(std::make_unique<Member>(pid, vgpu));
    gpu_.Join(vgpu, members_.back()->process, 0, 1, Now());
    return *members_.back();
  }

  // A program without a shim that made a context.
  Member& Guest(VGpu& vgpu) {
    Member& member = Join(vgpu);
    member.process.who.guest = member.process.gate.ungated = true;
    MakeContext(member, ChannelServer::Source::kGuard);
    gpu_.Time().Wants(member.process, false, Now());
    return member;
  }

  static std::uint32_t ClientOf(const Member& member) { return 0xc1d00000 + (member.process.pid & 0xffff); }

  // As a context does: a group that computes with two channels, and one that copies.
  void MakeContext(const Member& member, ChannelServer::Source source = ChannelServer::Source::kShim) {
    const std::uint32_t client = ClientOf(member);
    const auto made = [&](std::uint32_t parent, std::uint32_t object, std::uint32_t cls, std::uint32_t detail) {
      channels_.Observe(member.process.pid,
                        {channel::ObjectEvent::Kind::kAlloc, 5, client, parent, object, cls, detail}, source, Now());
    };
    for (const auto& event : ContextEvents(client, kGroup)) channels_.Observe(member.process.pid, event, source, Now());
    made(kGroup, 11, channel::abi::kAnyChannel, 0);
    made(2, kCopies, channel::abi::kChannelGroup, 0xb);
    made(kCopies, 20, channel::abi::kAnyChannel, 0);
  }

  // It has a context and no work.
  Member& Resting(VGpu& vgpu) {
    Member& member = Join(vgpu);
    MakeContext(member);
    return member;
  }
  Member& Running(VGpu& vgpu) {
    Member& member = Resting(vgpu);
    Works(member);
    return member;
  }
  // As a program does: where the gate is free it says so, else it asks.
  void Works(Member& member) { gpu_.Time().Wants(member.process, member.Order() != wire::GateOrder::kFree, Now()); }
  void Rests(Member& member) { gpu_.Time().Idle(member.process, now_, Now()); }

  // The test's own time: a microsecond later at each event.
  Nanos Now() { return now_ += kMicrosecond; }
  void Pass(Nanos time) { gpu_.Time().AdvanceTo(now_ += time); }
  // Lets time pass until `holds`; false if that takes more than five seconds.
  template <typename Condition>
  bool Becomes(Condition holds) {
    for (const Nanos end = now_ + 5 * kSecond; !holds() && now_ < end;) Pass(kMillisecond);
    return holds();
  }
  bool HasSlice(const Member& member, Nanos slice) {
    return Becomes([&] { return control_->slices[member.process.pid] == slice; });
  }

  // The device says, once, what each process has.
  void Measure(std::unordered_map<pid_t, std::uint64_t> by_process) {
    gpu_.Measurement().Begin();
    Reconcile({.by_process = std::move(by_process)});
  }
  void Reconcile(const DeviceUse& measured) { gpu_.Measurement().Reconcile(measured, Now()); }

  template <typename Subject>
  void Freeze(Subject& subject, bool frozen) {
    gpu_.Freezes().SetByOperator(subject, frozen, Now());
  }
  bool Steers() { return FreezesChannels(gpu_.Time().Ways().Present()); }

  bool Frozen(const Member& member, std::uint32_t channel = 10) const {
    return control_->frozen.contains({ClientOf(member), channel});
  }

  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::Create());
  const Config config_;
  std::unique_ptr<FakeControl> owned_control_ = std::make_unique<FakeControl>();
  FakeControl* control_ = owned_control_.get();
  ChannelServer channels_{std::move(owned_control_), "", nullptr};
  GpuServer gpu_{*loop_, 0, {FakeDriver::UuidOf(0), "Fake GPU", 10 * kGiB, kContext}, 0, config_, channels_, {}, {}};
  VGpu high_, low_;
  std::list<VGpu> others_;
  Nanos now_ = MonotonicNow();
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tessera::server
