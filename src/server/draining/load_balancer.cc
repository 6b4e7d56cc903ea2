#include "server/draining/load_balancer.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "server/draining/homes.h"
#include "server/migration/move_estimate.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// Of an H200 both ways at once (docs/hardware-log.md).
constexpr double kBytesPerSecond = 44e9;

sched::BalanceRules RulesOf(const VGpuTable::Gpus& gpus) {
  const bool swaps = std::ranges::any_of(gpus, [](const auto& gpu) { return gpu->Swaps(); });
  return {.bytes_per_second = swaps ? kBytesPerSecond : 0};
}

// An operator or its owner holds it, or a program in it.
bool Frozen(const VGpu& vgpu) {
  return vgpu.spec.frozen || std::ranges::any_of(vgpu.processes, &Process::FrozenByOperator);
}

// A goal of latency would be missed on the way, a gang has its GPUs by intent, and what is frozen would have to run to
// leave. A program that has begun, and does not use the GPU yet, would not find it.
bool Stays(const VGpu& vgpu) {
  return !vgpu.spec.gang.empty() || Frozen(vgpu) || vgpu.joined > vgpu.processes.size() ||
         (vgpu.spec.goal && std::holds_alternative<sched::LatencyGoal>(*vgpu.spec.goal));
}

// The part of a GPU that it can use. Others of a space run at the same time.
double MostOf(const VGpu& vgpu) {
  if (Frozen(vgpu)) return 0;
  const sched::Shares& shares = vgpu.spec.compute;
  return std::min(shares.limit_pct, vgpu.spec.space.empty() ? 100 : shares.space.sm_pct) / 100;
}

}  // namespace

LoadBalancer::LoadBalancer(EventLoop& loop, VGpuTable& table, const VGpuTable::Gpus& gpus,
                           const Suspensions& suspensions, MoveQueue& queue)
    : table_(table),
      gpus_(gpus),
      suspensions_(suspensions),
      queue_(queue),
      rules_(RulesOf(gpus)),
      sent_(gpus.size()),
      timer_(loop, [this] { Look(MonotonicNow()); }) {}

void LoadBalancer::Configure(bool on, Nanos now) {
  on &= gpus_.size() > 1;
  if (std::exchange(on_, on) == on) return;
  balancer_ = {};
  timer_.Arm(on ? now : kNever);
}

// Waits for its own limit are no work for this GPU, nor would they be for another one.
sched::Balancer::Seen LoadBalancer::See(const VGpu& vgpu, Nanos now) const {
  GpuServer& gpu = *gpus_[vgpu.gpu];
  const StandingLog::Figures standing = vgpu.standing.At(now);
  MoveEstimate estimate;
  estimate.Add(gpu.Placement(), vgpu);
  sched::Balancer::Seen seen{
      .vgpu = vgpu.id,
      .gpu = vgpu.gpu,
      .ran = gpu.Time().FiguresOf(vgpu, now).usage.busy,
      .had_work = standing.with_work - standing.throttled_time + vgpu.memory_pressure.At(now).total,
      .most = MostOf(vgpu),
      .pause = static_cast<Nanos>(estimate.Seconds() * kSecond),
      .moves = queue_.Moves(vgpu.id),
      .stays = Stays(vgpu)};
  for (const Process* process : vgpu.processes) seen.memory += process->memory.Current();
  return seen;
}

void LoadBalancer::Look(Nanos now) {
  timer_.Arm(now + sched::Balancer::kEvery);
  std::vector<sched::Balancer::Seen> seen;
  for (const auto& gpu : gpus_) {
    for (const VGpu* vgpu : gpu->VGpus()) seen.push_back(See(*vgpu, now));
  }
  balancer_.See(seen, now);
  if (!balancer_.AnyOver(rules_)) return;
  while (SendOne(now)) continue;
}

bool LoadBalancer::SendOne(Nanos now) {
  const Homes homes = HomesOf(gpus_, suspensions_, queue_);
  const auto move = balancer_.Next(homes.homes, homes.dwellers, homes.ids, rules_, now);
  if (!move) return false;
  VGpu& vgpu = *table_.Find(homes.ids[move->dweller]);
  double asked = 0;
  for (const VGpu* each : gpus_[vgpu.gpu]->VGpus()) asked += balancer_.WantedOf(each->id);
  log::Info("GPU {} is asked for {:.0f} % of its time: vGPU {} goes to GPU {}", vgpu.gpu, 100 * asked, vgpu.spec.name,
            move->to);
  vgpu.migrate_error.clear();
  ++sent_[vgpu.gpu];
  queue_.Add({{vgpu.id, static_cast<std::uint32_t>(move->to)}}, now);
  return true;
}

}  // namespace tessera::server
