#include "plan/fleet/needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>

namespace tessera::plan {
namespace {

using sched::PartOf;
using sched::UseSeries;

double Seconds(Nanos time) { return static_cast<double>(time) / kSecond; }

// How well a speed is to be kept: NeedOptions::margin, and kSpeedTolerance or 0.
struct Goodness {
  double margin = 0, tolerance = 0;
};

// Part of the GPU's time that the tenant needs on this part of the SMs, [0, …); 0: nothing was promised to it.
double TimeOn(const Tenant& tenant, const GpuModel& gpu, double sms, bool in_space, const Goodness& goodness) {
  const auto& [margin, tolerance] = goodness;
  const double speed = SpeedOn(tenant, gpu, sms, in_space);
  double time = tenant.request_pct / 100 / speed;
  if (tenant.goal) {
    if (const auto* goal = std::get_if<sched::SpeedGoal>(&*tenant.goal)) {
      time = std::max(time, std::min(1.0, goal->part() * (1 - tolerance + margin)) / speed);
    } else if (tenant.arrivals.kind == Arrivals::Kind::kPoisson || tenant.arrivals.kind == Arrivals::Kind::kEven) {
      time = std::max(time, TimeForLatency(std::get<sched::LatencyGoal>(*tenant.goal),
                                           ServiceOn(tenant, gpu, sms, in_space), tenant.arrivals.per_second));
    }
  }
  // What arrives has to be done, too.
  constexpr double kKeepsUp = 1.05;
  return std::max(time, tenant.arrivals.per_second * Seconds(ServiceOn(tenant, gpu, sms, in_space)) * kKeepsUp);
}

// The fewest SMs, in whole percents, on which the tenant needs at most this part of the time; 0: there are none.
int LeastSms(const Tenant& tenant, const GpuModel& gpu, const Goodness& goodness, double time) {
  constexpr int kNarrowest = 4;  // less is not known of any program
  for (int pct = kNarrowest; pct < 100; ++pct) {
    if (TimeOn(tenant, gpu, pct / 100.0, true, goodness) <= time) return pct;
  }
  return 0;
}

// In a space: the narrowest rectangles of a few heights, so that those of several tenants lie well beside and above
// each other. Then all SMs.
std::vector<sched::Way> WaysOf(const Tenant& tenant, const GpuModel& gpu, const NeedOptions& options) {
  const bool tessera = options.policy == PlanPolicy::kTessera;
  const Goodness goodness = tessera ? Goodness{options.margin, kSpeedTolerance} : Goodness();
  std::vector<sched::Way> ways;
  const auto add = [&](double sms, double time, bool in_space) {
    ways.push_back({.size = {.sms = PartOf(sms * 100), .time = PartOf(std::min(1.0, time) * 100)},
                    .bandwidth = tenant.bandwidth * SpeedOn(tenant, gpu, sms, in_space)});
  };
  const double on_all = TimeOn(tenant, gpu, 1, false, goodness);
  if (on_all <= 0) return ways;
  int before = 0;
  for (const double time : {1.0, 0.75, 2.0 / 3, 0.5, 1.0 / 3, 0.25, 0.2, 0.125}) {
    if (!tessera || tenant.group.empty()) break;
    const int sms = LeastSms(tenant, gpu, goodness, time);
    if (sms == 0 || sms == before) continue;
    before = sms;
    add(sms / 100.0, TimeOn(tenant, gpu, sms / 100.0, true, goodness), true);
  }
  add(1, on_all, false);
  return ways;
}

UseSeries UseOf(const Workload& workload, const Tenant& tenant) {
  if (tenant.samples.empty() || workload.interval <= 0) return {};
  const auto count = static_cast<std::size_t>((workload.length + workload.interval - 1) / workload.interval);
  std::vector<std::int32_t> duty(count), memory(count);
  for (const UseSample& sample : tenant.samples) {
    const auto at = std::min(count - 1, static_cast<std::size_t>(sample.at / workload.interval));
    duty[at] = static_cast<std::int32_t>(std::lround(sample.duty * UseSeries::kWholeInterval));
    memory[at] = static_cast<std::int32_t>(sample.memory >> 20);
  }
  return UseSeries::Of(std::move(duty), std::move(memory));
}

// The duty that is passed in one of a hundred intervals.
double HighDuty(const Tenant& tenant) {
  std::vector<float> duties;
  for (const UseSample& sample : tenant.samples) duties.push_back(sample.duty);
  const auto rank = duties.begin() + static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(duties.size() - 1));
  std::ranges::nth_element(duties, rank);
  return *rank;
}

// Whether bursts keep the goal that have this part of the GPU's time. The tail of the waits is nearly exponential: of
// load r, a wait exceeds t with probability r exp(-2 (1 - r) t / (r S)) (the heavy-traffic approximation of Kingman,
// 1961, for a fixed S).
bool KeepsLatency(const sched::LatencyGoal& goal, Nanos service, double per_second, double part) {
  const double limit = Seconds(goal.time);
  const double stretched = Seconds(service) / part;
  const double load = per_second * stretched;
  if (load >= 1 || stretched > limit) return false;
  return load * std::exp(-2 * (1 - load) * (limit - stretched) / (load * stretched)) <= goal.violations();
}

std::string TimeText(Nanos time) {
  return time < kSecond ? fmt::format("{:.4g} ms", static_cast<double>(time) / kMillisecond)
                        : fmt::format("{:.4g} s", Seconds(time));
}

}  // namespace

double SpeedOn(const Tenant& tenant, const GpuModel& gpu, double sms, bool in_space) {
  if (!in_space) return tenant.speed.At(sms);
  return tenant.speed.At(sms) * (tenant.beside > 0 ? tenant.beside : gpu.space_speed);
}

double BurstsAlone(const Tenant& tenant) {
  if (tenant.bursts_alone > 0) return tenant.bursts_alone;
  return tenant.service > 0 ? 1 / Seconds(tenant.service) : 0;
}

// The curve is of the whole loop, the host's part included, which does not grow on fewer SMs.
Nanos ServiceOn(const Tenant& tenant, const GpuModel& gpu, double sms, bool in_space) {
  const double alone = BurstsAlone(tenant);
  if (alone <= 0) return tenant.service;
  const double loop = kSecond / alone;
  const double host = std::max(0.0, loop - static_cast<double>(tenant.service));
  return static_cast<Nanos>(std::max(1.0, loop / SpeedOn(tenant, gpu, sms, in_space) - host));
}

double TimeForLatency(const sched::LatencyGoal& goal, Nanos service, double per_second) {
  if (!KeepsLatency(goal, service, per_second, 1)) return 1;
  double low = 0, high = 1;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (KeepsLatency(goal, service, per_second, middle) ? high : low) = middle;
  }
  return high;
}

std::string WhyOutOfReach(const Tenant& tenant, const GpuModel& gpu) {
  const auto* goal = tenant.goal ? std::get_if<sched::LatencyGoal>(&*tenant.goal) : nullptr;
  if (goal == nullptr) return {};
  const auto& services = tenant.arrivals.services;
  if (!services.empty()) {
    const auto longer = std::ranges::count_if(services, [&](Nanos each) { return each > goal->time; });
    const double part = static_cast<double>(longer) / static_cast<double>(services.size());
    if (part <= goal->violations()) return {};
    return fmt::format("{:.3g} % of its bursts need more than {} alone", 100 * part, TimeText(goal->time));
  }
  const Nanos service = ServiceOn(tenant, gpu, 1, false);
  if (service > goal->time) {
    return fmt::format("its bursts need at least {} alone, the goal is {}", TimeText(service), TimeText(goal->time));
  }
  const double per_second = tenant.arrivals.per_second, load = per_second * Seconds(service);
  if (load >= 1) return fmt::format("{:.4g} bursts a second need {:.4g} % of a GPU", per_second, 100 * load);
  if (tenant.arrivals.kind == Arrivals::Kind::kPoisson && !KeepsLatency(*goal, service, per_second, 1)) {
    return fmt::format("{:.4g} bursts a second wait too long for one another, alone as well", per_second);
  }
  return {};
}

std::vector<sched::FleetTenant> NeedsOf(const Workload& workload, const GpuModel& gpu, const NeedOptions& options) {
  std::map<std::string, std::uint32_t> groups;
  std::vector<sched::FleetTenant> needs;
  for (const Tenant& tenant : workload.tenants) {
    sched::FleetTenant& need = needs.emplace_back();
    if (!tenant.group.empty()) need.group = groups.try_emplace(tenant.group, groups.size() + 1).first->second;
    need.gpus = tenant.gpus;
    need.memory = tenant.memory;
    need.promised = tenant.memory_request;
    need.fixed = options.policy == PlanPolicy::kTessera ? gpu.moves.context : 0;
    need.waits_for_turns = !(tenant.goal && std::holds_alternative<sched::LatencyGoal>(*tenant.goal));
    need.ways = WaysOf(tenant, gpu, options);
    need.use = UseOf(workload, tenant);
    if (options.policy == PlanPolicy::kFgd && !need.use.empty()) {
      need.use = {};
      need.ways = {{.size = {.sms = sched::kWhole, .time = PartOf(100 * HighDuty(tenant))}, .bandwidth = 0}};
    }
  }
  return needs;
}

sched::FleetGpu FleetGpuOf(const Workload& workload, const GpuModel& gpu, PlanPolicy policy) {
  const bool tessera = policy == PlanPolicy::kTessera;
  sched::FleetGpu fleet{.memory = gpu.memory,
                        .move_bytes_per_second = gpu.moves.BytesPerSecond(),
                        .interval = workload.interval,
                        .pause = gpu.moves.migration,
                        .moves_memory = tessera,
                        .has_spaces = tessera,
                        .shares_time = policy != PlanPolicy::kMemory};
  return fleet;
}

}  // namespace tessera::plan
