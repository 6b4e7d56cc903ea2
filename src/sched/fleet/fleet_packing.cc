#include "sched/fleet/fleet_packing.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "sched/fleet/gpu_load.h"

namespace tessera::sched {
namespace {

// GPUs that are being filled.
class Filling {
 public:
  Filling(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, std::size_t most)
      : tenants_(tenants), gpu_(gpu), most_(most == 0 ? SIZE_MAX : most), on_(tenants.size()) {}

  // As it was placed before.
  Filling(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, const Placement& before, std::size_t gpus)
      : Filling(tenants, gpu, gpus) {
    loads_.assign(gpus, GpuLoad(tenants, gpu));
    for (std::size_t tenant = 0; tenant < tenants.size(); ++tenant) {
      on_[tenant] = before.seats[tenant].gpus;
      for (const std::size_t index : on_[tenant]) loads_[index].Add(tenant);
    }
  }

  std::vector<GpuLoad>& loads() { return loads_; }

  // Adds the tenant to these GPUs, and to new ones until it has as many as it runs on. False: it does not fit alone, or
  // there are no more.
  bool Put(std::size_t tenant, std::vector<std::size_t> gpus) {
    const std::size_t wanted = tenants_[tenant].gpus;
    if (gpus.size() > wanted) gpus.resize(wanted);
    const std::size_t fresh = wanted - gpus.size();
    if (fresh > 0 && (loads_.size() + fresh > most_ || !GpuLoad(tenants_, gpu_).HasRoomFor(tenant))) return false;
    for (std::size_t i = 0; i < fresh; ++i) {
      gpus.push_back(loads_.size());
      loads_.emplace_back(tenants_, gpu_);
    }
    for (const std::size_t index : gpus) loads_[index].Add(tenant);
    on_[tenant] = std::move(gpus);
    return true;
  }

  Placement Seats() const {
    Placement placement;
    placement.seats.resize(tenants_.size());
    for (const GpuLoad& load : loads_) {
      const auto seats = load.Seats();
      for (std::size_t i = 0; i < seats.size(); ++i) placement.seats[load.members()[i]] = seats[i];
    }
    for (std::size_t tenant = 0; tenant < on_.size(); ++tenant) placement.seats[tenant].gpus = on_[tenant];
    placement.gpus = loads_.size();
    return placement;
  }

 private:
  const std::vector<FleetTenant>& tenants_;
  const FleetGpu& gpu_;
  const std::size_t most_;
  std::vector<GpuLoad> loads_;
  std::vector<std::vector<std::size_t>> on_;  // of each tenant, its GPUs
};

// What a tenant needs of a GPU alone, of what it needs most; parts of the whole.
double Need(const FleetTenant& tenant, const FleetGpu& gpu) {
  double need = gpu.memory > 0
                    ? static_cast<double>(gpu.moves_memory ? tenant.promised + tenant.fixed : tenant.memory) /
                          static_cast<double>(gpu.memory)
                    : 0;
  double area = tenant.ways.empty() ? 0 : 1e9;
  for (const Way& way : tenant.ways) area = std::min(area, PctOf(way.size.sms) * PctOf(way.size.time) / 1e4);
  double used = 0;
  for (const std::int32_t duty : tenant.use.duty) used += duty;
  if (!tenant.use.empty()) used /= static_cast<double>(tenant.use.duty.size()) * UseSeries::kWholeInterval;
  if (gpu.shares_time) need = std::max({need, area, used});
  return need;
}

// Of what is left of the GPU, the part that a tenant drawn at random could not use.
double Unusable(const std::vector<FleetTenant>& tenants, double time_left, double memory_left, double memory) {
  double unusable = 0;
  for (const FleetTenant& tenant : tenants) {
    const double time = tenant.ways.empty() ? 0 : PctOf(tenant.ways.back().size.time) / 100;
    const bool fits = time <= time_left && static_cast<double>(tenant.memory) <= memory_left * memory;
    if (!fits) unusable += time_left;
  }
  return unusable / static_cast<double>(tenants.size());
}

}  // namespace

Placement FirstFitDecreasing(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, std::size_t most_gpus) {
  std::vector<std::size_t> order(tenants.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::ranges::greater(), [&](std::size_t tenant) {
    return std::tuple(tenants[tenant].gpus, Need(tenants[tenant], gpu), tenants.size() - tenant);
  });
  Filling fleet(tenants, gpu, most_gpus);
  for (const std::size_t tenant : order) {
    std::vector<std::size_t> fitting;
    for (std::size_t i = 0; i < fleet.loads().size() && fitting.size() < tenants[tenant].gpus; ++i) {
      if (fleet.loads()[i].HasRoomFor(tenant)) fitting.push_back(i);
    }
    fleet.Put(tenant, std::move(fitting));
  }
  return fleet.Seats();
}

Placement LeastFragmentation(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, std::size_t most_gpus) {
  Filling fleet(tenants, gpu, most_gpus);
  const auto memory = static_cast<double>(gpu.memory);
  for (std::size_t tenant = 0; tenant < tenants.size(); ++tenant) {
    std::vector<std::pair<double, std::size_t>> fitting;  // by what it adds to the fragmentation
    for (std::size_t i = 0; i < fleet.loads().size(); ++i) {
      const GpuLoad& load = fleet.loads()[i];
      if (!load.HasRoomFor(tenant)) continue;
      const double time = 1 - load.Time();
      const double room = 1 - load.Memory();
      const double own_time = tenants[tenant].ways.empty() ? 0 : PctOf(tenants[tenant].ways.back().size.time) / 100;
      const double own_room = memory > 0 ? static_cast<double>(tenants[tenant].memory) / memory : 0;
      fitting.emplace_back(
          Unusable(tenants, time - own_time, room - own_room, memory) - Unusable(tenants, time, room, memory), i);
    }
    std::ranges::sort(fitting);
    std::vector<std::size_t> gpus;
    for (const auto& [_, index] : fitting) gpus.push_back(index);
    fleet.Put(tenant, std::move(gpus));
  }
  return fleet.Seats();
}

Placement Crowd(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, const Placement& placement,
                std::size_t gpus) {
  Filling filling(tenants, gpu, placement, gpus);
  FleetGpu patient = gpu;  // its use may be too much
  patient.most_over = patient.most_over_of_one = 1;
  for (std::size_t tenant = 0; tenant < tenants.size(); ++tenant) {
    if (!placement.seats[tenant].gpus.empty()) continue;
    std::vector<std::pair<double, std::size_t>> fitting;  // by what is too much then
    for (std::size_t i = 0; i < gpus; ++i) {
      GpuLoad load(tenants, patient);
      for (const std::size_t member : filling.loads()[i].members()) load.Add(member);
      if (!load.HasRoomFor(tenant)) continue;
      const GpuLoad::Excess after = load.After(GpuLoad::kNobody, tenant);
      fitting.emplace_back(after.over + after.beyond, i);
    }
    if (fitting.size() < tenants[tenant].gpus) continue;
    std::ranges::sort(fitting);
    std::vector<std::size_t> on;
    for (std::uint32_t i = 0; i < tenants[tenant].gpus; ++i) on.push_back(fitting[i].second);
    filling.Put(tenant, std::move(on));
  }
  Placement crowded = filling.Seats();
  crowded.gpus = static_cast<std::size_t>(
      std::ranges::count_if(filling.loads(), [](const GpuLoad& load) { return !load.members().empty(); }));
  return crowded;
}

Placement Exclusive(const std::vector<FleetTenant>& tenants, std::size_t most_gpus) {
  Placement placement;
  for (const FleetTenant& tenant : tenants) {
    Placement::Seat& seat = placement.seats.emplace_back();
    if (most_gpus > 0 && placement.gpus + tenant.gpus > most_gpus) continue;
    if (!tenant.ways.empty()) seat.way = tenant.ways.back();
    for (std::uint32_t i = 0; i < tenant.gpus; ++i) seat.gpus.push_back(placement.gpus++);
  }
  return placement;
}

}  // namespace tessera::sched
