// Properties of SpaceServer that hold for all vGPUs and messages. The cases are the same on every run;
// RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "base/testing/same_cases.h"
#include "server/testing/context_events.h"
#include "server/testing/fake_control.h"
#include "server/time/space_server.h"

namespace tessera::server {
namespace {

using State = GateRecord::State;

constexpr pid_t kFirstProcess = 500'000'000, kFirstServer = 600'000'000;  // beyond any that exists
constexpr std::uint32_t kSpaces = 2;
constexpr sched::VgpuId kVgpus = 6;  // of which some are in a space, and some in none

std::uint32_t ClientOf(pid_t pid) { return 0xc1d00000 + (pid & 0xffff) + (pid >= kFirstServer ? 0x100000 : 0); }

struct Program {
  explicit Program(pid_t pid) : page(std::move(*SharedPage::Create(0))), gate(page, pid) {}
  SharedPage page;
  GateRecord gate;
  sched::VgpuId vgpu = 0;  // 0: it is in none
};

// A GPU, and programs that say anything in any order.
class AnyGpu {
 public:
  AnyGpu() {
    for (pid_t pid = kFirstProcess; pid < kFirstProcess + 8; ++pid) programs_.push_back(std::make_unique<Program>(pid));
  }

  void Happen() {
    const auto id = *rc::gen::inRange<sched::VgpuId>(1, kVgpus + 1);
    Program& program = *programs_[*rc::gen::inRange<std::size_t>(0, programs_.size())];
    const Nanos stamp = *rc::gen::element<Nanos>(0, now_ - kMillisecond, now_, now_ + kSecond, -1);
    switch (*rc::gen::inRange(0, 16)) {
      case 0:
      case 1:
        if (!shares_.contains(id)) Empty(id);  // it is another vGPU than before
        if (const sched::Shares shares = AnyShares(id); server_.Set(id, shares, now_)) shares_[id] = shares;
        break;
      case 2:
        if (*rc::gen::inRange(0, 3) != 0) break;
        // In a space they stay, closed for good. Elsewhere they would stay frozen, too.
        if (!InSpace(id)) Empty(id);
        server_.Remove(id, now_);
        shares_.erase(id);
        break;
      case 3:
      case 4:
        Move(program, id);
        break;
      case 5:
        server_.Hold(program.gate, !program.gate.held, now_);
        break;
      case 6:
        SetServer(*rc::gen::inRange(1u, kSpaces + 1), *rc::gen::inRange(0, 3));
        break;
      case 7:
      case 8:
        server_.Idle(program.gate, now_, stamp);
        break;
      case 9:
        // A process that says it at an open gate lies, and may as well ignore its gate.
        if (program.gate.state != State::kRunning) server_.Released(program.gate, now_, stamp, program.page.Epoch());
        break;
      case 10:
      case 11:
      case 12:
        server_.Wants(program.gate, now_, *rc::gen::inRange(0, 2) == 0);
        break;
      default:
        now_ = std::min(server_.NextDeadline().at, now_ + *rc::gen::inRange<Nanos>(1, 100) * kMillisecond);
        server_.Advance(now_);
        break;
    }
    now_ += kMicrosecond;
  }

  void Check() {
    RC_ASSERT(!control_->twice);
    for (const auto& program : programs_) {
      // A parked process waits for a newer order, whatever the last one said.
      const bool parked = program->gate.state == State::kParked;
      if (program->gate.held && !parked && InSpace(program->vgpu)) RC_ASSERT(!IsOpen(*program));
    }
    for (std::uint32_t space = 1; space <= kSpaces; ++space) {
      const pid_t server = channels_.Table().ServerOf(space);
      const TimeServer::SpaceTime time = server_.TimeOf(space, now_);
      RC_ASSERT(time.passed >= 0 && time.passed <= now_ && time.had >= 0 && time.had <= time.passed + 1);
      const bool stands = server != 0 && control_->frozen.contains({ClientOf(server), 10});
      for (const auto& [id, shares] : shares_) {
        if (shares.space.number != space) continue;
        if (stands) RC_ASSERT(server_.StateOf(id).standing != Standing::kRunning);
        const sched::Usage usage = server_.UsageOf(id, now_);
        RC_ASSERT(usage.busy >= 0 && usage.busy <= now_);
      }
      // The channels of a client are the server's.
      for (const auto& program : programs_) {
        if (stands && program->vgpu != 0 && channels_.Table().ServerOfClient(program->gate.pid) == server)
          RC_ASSERT(control_->frozen.contains({ClientOf(program->gate.pid), 10}));
      }
    }
  }

  // All that works gets its turn, and nothing stays off the GPU.
  void EndWell() {
    for (const auto& program : programs_) {
      if (program->gate.held) server_.Hold(program->gate, false, now_);
      if (program->gate.state == State::kDraining) server_.Released(program->gate, now_, now_, program->page.Epoch());
      server_.Idle(program->gate, now_, now_);
    }
    for (int i = 0; i < 3; ++i) server_.Advance(now_ += kSecond);
    RC_ASSERT(control_->frozen.empty());
    for (const auto& program : programs_) {
      if (program->vgpu == 0 || !shares_.contains(program->vgpu)) continue;
      server_.Wants(program->gate, now_, true);
      for (int i = 0; i < 100 && !IsOpen(*program); ++i) server_.Advance(now_ += 10 * kMillisecond);
      RC_ASSERT(IsOpen(*program));
      server_.Idle(program->gate, now_, now_);
    }
    server_.Abandon(now_);
    for (const auto& program : programs_) RC_ASSERT(program->gate.token == nullptr && program->gate.steered == nullptr);
    RC_ASSERT(control_->frozen.empty());
  }

 private:
  static bool IsOpen(const Program& program) {
    const wire::GateOrder order = program.page->gate.load();
    return order == wire::GateOrder::kOpen || order == wire::GateOrder::kBounded || order == wire::GateOrder::kFree;
  }
  // vGPUs 1 and 2 are in space 1, 3 and 4 in space 2, the others in none.
  static std::uint32_t SpaceOf(sched::VgpuId id) { return id <= 2 * kSpaces ? (id + 1) / 2 : 0; }
  static bool InSpace(sched::VgpuId id) { return id != 0 && SpaceOf(id) != 0; }
  static sched::Shares AnyShares(sched::VgpuId id) {
    sched::Shares shares{.request_pct = *rc::gen::inRange(0, 40) * 1.0,
                         .limit_pct = *rc::gen::inRange(40, 101) * 1.0,
                         .weight = *rc::gen::inRange(1u, 1000u),
                         .priority = *rc::gen::inRange(0u, 16u),
                         .measured = *rc::gen::arbitrary<bool>(),
                         .short_queue = *rc::gen::arbitrary<bool>()};
    shares.space = {.number = SpaceOf(id),
                    .sm_pct = InSpace(id) ? *rc::gen::inRange(0, 101) * 1.0 : 100,
                    .in_turns = *rc::gen::arbitrary<bool>()};
    return shares;
  }

  void MakeContext(pid_t pid) {
    for (const auto& event : ContextEvents(ClientOf(pid)))
      channels_.Observe(pid, event, ChannelServer::Source::kShim, now_);
  }
  void EndContext(pid_t pid) {
    const std::uint32_t client = ClientOf(pid);
    channels_.Observe(pid, {.kind = channel::ObjectEvent::Kind::kFree, .fd = 5, .client = client, .object = client},
                      ChannelServer::Source::kShim, now_);
    control_->frozen.erase({client, 10});
  }
  // A program leaves the vGPU in which it is, and joins this one if it can.
  void Move(Program& program, sched::VgpuId id) {
    const pid_t pid = program.gate.pid;
    if (program.vgpu != 0) {
      server_.Leave(program.gate, now_);
      EndContext(pid);
      channels_.LeaveSpace(pid);
      channels_.Forget(pid);
      program.gate.state = State::kParked;  // where it comes next it is another process
      program.gate.held = false;
      program.page.Give({});
      if (std::exchange(program.vgpu, 0) == id) return;
    }
    if (!shares_.contains(id)) return;
    if (InSpace(id)) channels_.EnterSpace(pid, SpaceOf(id));
    if (*rc::gen::inRange(0, 4) > 0) channels_.ClientWorks(pid);  // else its space is spared
    MakeContext(pid);
    program.vgpu = id;
    server_.Join(id, program.gate, now_);
  }
  void Empty(sched::VgpuId id) {
    for (const auto& program : programs_) {
      if (program->vgpu == id) Move(*program, id);
    }
  }
  void SetServer(std::uint32_t space, int which) {
    const pid_t pid = which == 0 ? 0 : kFirstServer + static_cast<pid_t>(10 * space) + which;
    const pid_t before = channels_.Table().ServerOf(space);
    if (pid == before) return;
    std::vector<pid_t> clients;
    for (const auto& program : programs_) {
      if (before != 0 && channels_.Table().ServerOfClient(program->gate.pid) == before)
        clients.push_back(program->gate.pid);
    }
    for (const pid_t client : clients) EndContext(client);
    channels_.SetServer(space, pid);
    if (before != 0) control_->frozen.erase({ClientOf(before), 10});  // it has ended
    channels_.Tick();
    if (pid != 0) MakeContext(pid);
    for (const pid_t client : clients) MakeContext(client);
    server_.LeadersChanged(now_);
  }

  std::unique_ptr<FakeControl> owned_control_ = std::make_unique<FakeControl>();
  FakeControl* control_ = owned_control_.get();
  ChannelServer channels_{std::move(owned_control_), "", nullptr};
  SpaceServer server_{std::make_unique<SteeringServer>(0, sched::SteeringConfig{}, 2 * kMillisecond, channels_),
                      sched::Config{}, 2 * kMillisecond, channels_};
  std::vector<std::unique_ptr<Program>> programs_;
  std::map<sched::VgpuId, sched::Shares> shares_;
  Nanos now_ = 100 * kSecond;
};

RC_GTEST_PROP(SpaceServerProperty, SurvivesAnyMessages, ()) {
  AnyGpu gpu;
  const int events = *rc::gen::inRange(0, 300);
  for (int i = 0; i < events; ++i) {
    gpu.Happen();
    if (*rc::gen::inRange(0, 4) > 0) gpu.Check();
  }
  gpu.EndWell();
}

}  // namespace
}  // namespace tessera::server
