#include "server/spaces/own_sms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sched/packing/free_range.h"

namespace tessera::server {
namespace {

using sched::SmRange;

std::uint32_t Hundredths(double pct) { return static_cast<std::uint32_t>(std::lround(pct * 100)); }

bool AreBeside(const VGpu& vgpu, const VGpu& other) {
  return &other != &vgpu && other.gpu == vgpu.gpu && other.spec.compute.space.number == vgpu.spec.compute.space.number;
}

// The SMs of the others of the space, and those in which their programs still work.
std::vector<SmRange> TakenBeside(const VGpu& vgpu, const std::vector<VGpu*>& all) {
  std::vector<SmRange> taken;
  for (const VGpu* other : all) {
    if (!AreBeside(vgpu, *other)) continue;
    const sched::SpacePlace& its = other->spec.compute.space;
    taken.push_back({sched::PartOf(its.from_pct), sched::PartOf(its.sm_pct)});
    for (const Process* process : other->processes) {
      const wire::SmPlace kept = process->page.TakenPlace();
      const bool goes_home = its.burst && kept == wire::kAllSms && !process->page.KeepsSms();
      if (HasOtherSms(*process) && !goes_home)
        taken.push_back({sched::PartOf(kept.from / 100.0), sched::PartOf(kept.width / 100.0)});
    }
  }
  return taken;
}

// Where `place` begins: where it did, if that is free.
Result<double> FindFrom(const sched::SpacePlace& place, const std::vector<SmRange>& taken, const std::string& space) {
  const sched::Part width = sched::PartOf(place.sm_pct);
  if (sched::IsFree(taken, {sched::PartOf(place.from_pct), width})) return place.from_pct;
  if (const auto from = sched::FirstFree(taken, width)) return sched::PctOf(*from);
  return Fail(ENOSPC,
              fmt::format("sm_limit of {:g} %: space {} has {:g} % of the SMs in one piece that are nobody's",
                          place.sm_pct, space, sched::PctOf(sched::WidestFree(taken))),
              "lower it, or remove another vGPU of the space");
}

}  // namespace

Result<void> PlaceSms(VGpu& vgpu, const std::vector<VGpu*>& all) {
  sched::SpacePlace& place = vgpu.spec.compute.space;
  for (const VGpu* other : all) {
    if (!AreBeside(vgpu, *other) || other->spec.compute.space.reserved == place.reserved) continue;
    return Fail(EINVAL,
                fmt::format("vGPU {} of space {} {}", other->spec.name, vgpu.spec.space,
                            place.reserved ? "has no SMs of its own" : "has SMs of its own"),
                "all vGPUs of a space have, or none has: choose another space, or the same for sm_reserved");
  }
  if (!place.reserved) return {};
  const auto from = FindFrom(place, TakenBeside(vgpu, all), vgpu.spec.space);
  if (!from) return std::unexpected(from.error());
  place.from_pct = *from;
  return {};
}

Result<void> MoveSms(const VGpu& vgpu, sched::SpacePlace& changed, const std::vector<VGpu*>& all) {
  const sched::SpacePlace& before = vgpu.spec.compute.space;
  if (before.reserved != changed.reserved)
    return Fail(EINVAL, "whether SMs are a vGPU's own cannot be changed", "make a new vGPU");
  if (!changed.reserved || before.sm_pct == changed.sm_pct) return {};
  for (const Process* process : vgpu.processes) {
    const std::uint32_t pins = process->page->sm_pins.load(std::memory_order_relaxed);
    if (pins == 0) continue;
    return Fail(EBUSY,
                fmt::format("process {} of vGPU {} has made {} stream{} or graphs, which keep their SMs", process->pid,
                            vgpu.spec.name, pins, pins == 1 ? "" : "s"),
                "end it first, or make a new vGPU");
  }
  const auto from = FindFrom(changed, TakenBeside(vgpu, all), vgpu.spec.space);
  if (!from) return std::unexpected(from.error());
  changed.from_pct = *from;
  return {};
}

void TellSms(const std::vector<VGpu*>& all, bool known) {
  const auto runs_beside = [&](const VGpu& vgpu) {
    return std::ranges::any_of(all,
                               [&](const VGpu* other) { return AreBeside(vgpu, *other) && !other->processes.empty(); });
  };
  for (const VGpu* vgpu : all) {
    const sched::SpacePlace& place = vgpu->spec.compute.space;
    if (!place.reserved || vgpu->processes.empty()) continue;
    const bool burst = known && place.burst && !runs_beside(*vgpu);
    for (Process* process : vgpu->processes) process->page.GivePlace(WirePlaceOf(place), burst);
  }
}

wire::SmPlace WirePlaceOf(const sched::SpacePlace& place) {
  return {.from = Hundredths(place.from_pct), .width = Hundredths(place.sm_pct)};
}

bool HasOtherSms(const Process& process) {
  const wire::SmPlace taken = process.page.TakenPlace(), wanted = process.page.WantedPlace();
  return wanted.width != 0 && taken.width != 0 && taken != wanted;
}

}  // namespace tessera::server
