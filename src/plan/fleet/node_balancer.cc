#include "plan/fleet/node_balancer.h"

namespace tessera::plan {
NodeBalancer::NodeBalancer(Simulator& simulator, const GpuModel& gpu, std::size_t gpus)
    : simulator_(simulator),
      gpu_(gpu),
      homes_(gpus, {.memory = gpu.memory, .place = UINT64_MAX, .resident = gpu.memory}),
      rules_({.bytes_per_second = gpu.moves.BytesPerSecond()}) {}

std::vector<sched::Balancer::Seen> NodeBalancer::See() const {
  std::vector<sched::Balancer::Seen> all;
  for (const sched::VgpuId program : programs_) {
    const PartFigures figures = simulator_.Of(program);
    const std::uint64_t memory = simulator_.AllocatedBy(program);
    const double seconds = 2 * static_cast<double>(memory) / gpu_.moves.BytesPerSecond();
    all.push_back({.vgpu = program,
                   .gpu = simulator_.GpuOf(program),
                   .ran = figures.executed,
                   .had_work = figures.had_work,
                   .memory = memory,
                   .pause = gpu_.moves.migration + static_cast<Nanos>(seconds * kSecond),
                   .moves = simulator_.Migrates(program)});
  }
  return all;
}

Result<void> NodeBalancer::Look() {
  const std::vector<sched::Balancer::Seen> seen = See();
  balancer_.See(seen, simulator_.now());
  if (!balancer_.AnyOver(rules_)) return {};
  std::vector<sched::Dweller> dwellers;
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    dwellers.push_back({.home = seen[i].gpu,
                        .needs = {.claim = {.sms = sched::kWhole}, .resident = gpu_.moves.context},
                        .held = seen[i].memory,
                        .group = i});
  }
  while (const auto move = balancer_.Next(homes_, dwellers, programs_, rules_, simulator_.now())) {
    const sched::VgpuId program = programs_[move->dweller];
    if (auto moved = simulator_.Migrate(program, move->to, gpu_.moves.migration); !moved) return moved;
    dwellers[move->dweller].home = move->to;
    ++moves_;
  }
  return {};
}

}  // namespace tessera::plan
