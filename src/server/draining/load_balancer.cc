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

// A goal of latency would be missed on the way, and a gang has its GPUs by intent.
bool Rests(const VGpu& vgpu) {
  return !vgpu.spec.gang.empty() || (vgpu.spec.goal && std::holds_alternative<sched::LatencyGoal>(*vgpu.spec.goal));
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
  if (std::exchange(on_, on) == on) return;
  vgpus_.clear();
  timer_.Arm(on ? now : kNever);
}

// One that was sent away has come there by now, or not.
void LoadBalancer::NoteMove(GpuServer& gpu, const VGpu& vgpu, Known& known, Nanos now) {
  if (known.gpu != gpu.Index()) {
    changed_[known.gpu] = changed_[gpu.Index()] = now;
    known.gpu = gpu.Index();
    known.samples.clear();
    known.stays_until = now + std::max(kLeastStay, kStayPerPause * known.pause);
    known.sent = false;
  }
  if (!known.sent || queue_.Moves(vgpu.id)) return;
  known.stays_until = now + kAfterFailure;
  known.sent = false;
}

// Waits for its own limit are no work for this GPU, nor would they be for another one.
void LoadBalancer::Watch(GpuServer& gpu, const VGpu& vgpu, Nanos now) {
  Known& known = vgpus_.try_emplace(vgpu.id, Known{.gpu = gpu.Index()}).first->second;
  NoteMove(gpu, vgpu, known, now);
  const StandingLog::Figures standing = vgpu.standing.At(now);
  known.samples.push_back(
      {.at = now,
       .ran = gpu.Time().FiguresOf(vgpu, now).usage.busy,
       .had_work = standing.with_work - standing.throttled_time + vgpu.memory_pressure.At(now).total});
  while (known.samples.size() > 2 && known.samples[1].at <= now - kWindow) known.samples.pop_front();
  const Sample &first = known.samples.front(), &last = known.samples.back();
  const Nanos span = last.at - first.at;
  if (span <= 0) return;
  const Nanos ran = std::clamp<Nanos>(last.ran - first.ran, 0, span);
  const Nanos had_work = std::clamp(last.had_work - first.had_work, ran, span);
  const sched::Shares& shares = vgpu.spec.compute;
  known.wanted = std::min(shares.limit_pct / 100, sched::WantedTime(ran, had_work, span));
  if (!vgpu.spec.space.empty()) known.wanted *= shares.space.sm_pct / 100;  // others of the space run at the same time
}

sched::Wanted LoadBalancer::WantedBy(const VGpu& vgpu, Nanos now) {
  Known& known = vgpus_.at(vgpu.id);
  MoveEstimate estimate;
  estimate.Add(gpus_[vgpu.gpu]->Placement(), vgpu);
  known.pause = static_cast<Nanos>(estimate.Seconds() * kSecond);
  sched::Wanted wanted{.time = known.wanted, .pause = known.pause};
  for (const Process* process : vgpu.processes) wanted.memory += process->memory.Current();
  wanted.stays = Rests(vgpu) || now < known.stays_until;
  return wanted;
}

void LoadBalancer::Look(Nanos now) {
  timer_.Arm(now + kEvery);
  std::erase_if(vgpus_, [this](const auto& each) { return table_.Find(each.first) == nullptr; });
  bool any = false;  // GPU may be asked for too much
  for (const auto& gpu : gpus_) {
    double time = 0;
    for (const VGpu* vgpu : gpu->VGpus()) {
      Watch(*gpu, *vgpu, now);
      time += vgpus_.at(vgpu->id).wanted;
    }
    any |= time + rules_.most_moving > rules_.most;
  }
  while (any) any = SendOne(now);
}

// From and to a GPU that a vGPU leaves or comes to nobody goes.
bool LoadBalancer::SendOne(Nanos now) {
  Homes homes = HomesOf(gpus_, suspensions_, queue_);
  std::vector<bool> closed(gpus_.size());
  for (std::size_t i = 0; i < homes.dwellers.size(); ++i) {
    if (queue_.Moves(homes.ids[i])) closed[homes.dwellers[i].home] = true;
  }
  for (const auto& [gpu, at] : changed_) {
    if (now - at < kWindow) closed[gpu] = true;
  }
  std::vector<sched::Wanted> wanted;
  for (std::size_t i = 0; i < homes.dwellers.size(); ++i) {
    wanted.push_back(WantedBy(*table_.Find(homes.ids[i]), now));
    if (closed[homes.dwellers[i].home]) wanted.back().stays = true;
  }
  for (std::size_t gpu = 0; gpu < closed.size(); ++gpu) {
    if (closed[gpu] && homes.homes[gpu].unusable.empty()) homes.homes[gpu].unusable = "a vGPU has just come or gone";
  }
  const auto move = sched::Balance(homes.homes, homes.dwellers, wanted, rules_);
  if (!move) return false;
  const std::size_t from = homes.dwellers[move->dweller].home;
  VGpu& vgpu = *table_.Find(homes.ids[move->dweller]);
  double asked = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) asked += homes.dwellers[i].home == from ? wanted[i].time : 0;
  log::Info("GPU {} is asked for {:.0f} % of its time: vGPU {} goes to GPU {}", from, 100 * asked, vgpu.spec.name,
            move->to);
  vgpu.migrate_error.clear();
  vgpus_.at(vgpu.id).sent = true;
  ++sent_[from];
  queue_.Add({{vgpu.id, static_cast<std::uint32_t>(move->to)}}, now);
  return true;
}

}  // namespace tessera::server
