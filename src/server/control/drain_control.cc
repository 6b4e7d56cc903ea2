#include "server/control/drain_control.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "server/control/suspension_control.h"
#include "server/gpu/gpu_choice.h"
#include "server/model/vgpu_request.h"
#include "server/record/log.h"

namespace tessera::server {

template <typename Task>
std::invoke_result_t<Task, Nanos> DrainControl::OnLoop(Task task) {
  if (auto allowed = control_.daemon_.Access().Allowed(control_.caller_, Operation::kDrain); !allowed)
    return std::unexpected(allowed.error());
  auto answer = control_.loop_.Call([this, task = std::move(task)] {
    control_.daemon_.StayAwhile(MonotonicNow());
    return task(MonotonicNow());
  });
  if (answer) return std::move(*answer);
  return Fail(ESHUTDOWN, "the daemon is ending", "try again when it runs");
}

// On the loop.
Result<std::uint32_t> DrainControl::Named(const std::string& gpu) const {
  if (gpu == "auto") return Fail(EINVAL, "no GPU is named", "tessera gpus lists them");
  const auto named = GpusNamed(gpu, control_.daemon_.Gpus());
  if (!named) return std::unexpected(named.error());
  return named->front();
}

// On the loop. vGPUs that stay where they are are left out.
RehomingReport DrainControl::Report(const MovePlan& plan, std::uint32_t gpu) const {
  Daemon& daemon = control_.daemon_;
  std::vector<VGpuMove> moves;
  std::size_t at_work = 0;  // of those that go together
  for (const auto& together : plan.moves) {
    bool works = false;
    for (const VGpuMove& move : together) {
      const VGpu& vgpu = *daemon.VGpus().Find(move.vgpu);
      works |= !vgpu.processes.empty();
      if (vgpu.gpu != move.to) moves.push_back(move);
    }
    at_work += works ? 1 : 0;
  }
  const std::size_t rounds = (at_work + MoveQueue::kAtOnce - 1) / MoveQueue::kAtOnce;
  RehomingReport report{.migration = ReportMigration(daemon, moves, rounds), .gpu = gpu};
  for (const MovePlan::Stay& stay : plan.stays) report.staying.push_back({stay.name, stay.why});
  return report;
}

Result<RehomingReport> DrainControl::Drain(const std::string& gpu, bool dry) {
  auto report = OnLoop([this, gpu, dry](Nanos now) -> Result<RehomingReport> {
    const auto index = Named(gpu);
    if (!index) return std::unexpected(index.error());
    Drains& drains = control_.daemon_.Moves().drains;
    const RehomingReport planned = Report(drains.Plan(*index), *index);  // before what is at once is done
    if (!dry) drains.Begin(*index, "", now);
    return planned;
  });
  if (report && !dry) control_.daemon_.AwaitSaved();
  return report;
}

Result<void> DrainControl::Undrain(const std::string& gpu) {
  auto done = OnLoop([this, gpu](Nanos now) -> Result<void> {
    const auto index = Named(gpu);
    if (!index) return std::unexpected(index.error());
    control_.daemon_.Moves().drains.End(*index, now);
    return {};
  });
  if (done) control_.daemon_.AwaitSaved();
  return done;
}

namespace {

// What is promised to a vGPU in no space.
sched::Newcomer NewcomerOf(const VGpuSpec& asked) {
  return {.owner = asked.uid,
          .claim = {.sms = sched::kWhole, .time = sched::PartOf(asked.compute.request_pct)},
          .memory = asked.memory.request};
}

}  // namespace

Result<RehomingReport> DrainControl::MakeRoom(const VGpuRequest& request, bool dry) {
  return OnLoop([this, request, dry](Nanos now) -> Result<RehomingReport> {
    GpuServer& any = *control_.daemon_.Gpus().front();
    VGpuSpec asked;
    if (auto ok = ApplyFigures(request, any.Info().memory_total, any.Swaps(), asked); !ok)
      return std::unexpected(ok.error());
    asked.uid = control_.caller_.uid;
    const auto plan = control_.daemon_.Moves().drains.PlanRoom(NewcomerOf(asked));
    if (!plan) return std::unexpected(plan.error());
    RehomingReport report = Report(*plan, plan->room_on);
    if (!dry) control_.daemon_.Moves().drains.Move(*plan, now);
    return report;
  });
}

// ---- rebalance.auto ----

// On the loop. The vGPUs that move now; none: that is not to be, or would not help. A caller who is over the quota
// moves nobody.
std::vector<VgpuId> DrainControl::BeginRoomFor(const VGpuRequest& request, Nanos now) const {
  Daemon& daemon = control_.daemon_;
  if (!daemon.RebalancesItself() || request.space || request.gpu.value_or("auto") != "auto") return {};
  GpuServer& any = *daemon.Gpus().front();
  VGpuSpec asked{.name = request.name.value_or(""), .uid = control_.caller_.uid};
  if (!ApplyFigures(request, any.Info().memory_total, any.Swaps(), asked)) return {};
  if (!control_.WithinQuota(request)(asked, nullptr)) return {};
  const auto plan = daemon.Moves().drains.PlanRoom(NewcomerOf(asked));
  if (!plan) return {};
  std::vector<VgpuId> moving;
  for (const auto& together : plan->moves) {
    for (const VGpuMove& move : together) moving.push_back(move.vgpu);
  }
  if (!moving.empty()) log::Info("room is made for a vGPU of user {}: {} vGPUs move", asked.uid, moving.size());
  daemon.Moves().drains.Move(*plan, now);
  return moving;
}

// Whether none of them is on its way any more.
bool DrainControl::AwaitMoves(const std::vector<VgpuId>& vgpus) const {
  constexpr std::chrono::milliseconds kLookEvery(10);
  for (const Nanos end = MonotonicNow() + kMostWait; MonotonicNow() < end;) {
    const auto moving = control_.loop_.Call([&] {
      return std::ranges::any_of(
          vgpus, [&](VgpuId vgpu) { return control_.daemon_.Moves().queue.TargetOf(vgpu).has_value(); });
    });
    if (!moving) return false;
    if (!*moving) return true;
    std::this_thread::sleep_for(kLookEvery);
  }
  return false;
}

Result<VGpuReport> DrainControl::Create(const VGpuRequest& request) {
  static std::atomic_flag making_room;  // for somebody
  auto made = control_.Create(request);
  if (made || made.error().code != ENOSPC || making_room.test_and_set()) return made;
  const auto moving = control_.loop_.Call([&] { return BeginRoomFor(request, MonotonicNow()); });
  const bool done = moving && !moving->empty() && AwaitMoves(*moving);
  making_room.clear();
  if (!done) return made;
  auto again = control_.Create(request);
  return again ? again : made;
}

}  // namespace tessera::server
