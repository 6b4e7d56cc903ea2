#include "plan/fleet/programs.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "plan/fleet/needs.h"

namespace tessera::plan {
namespace {

// Each interval is a phase that begins when it began then. A burst comes whenever the work since the begin sums up to
// another burst's, so that no work is lost or added by rounding. A gap in the record is one without work or memory.
void AddSeen(const Tenant& tenant, Nanos interval, Nanos burst, Program& program) {
  program.phases.clear();
  const auto length = static_cast<double>(burst);
  double work = 0;  // since the last burst
  Nanos end = 0;
  for (const UseSample& sample : tenant.samples) {
    if (sample.at > end && end > 0) program.phases.push_back({.burst = 0, .bursts = 0, .begins = end});
    end = sample.at + interval;
    const double more = sample.duty * static_cast<double>(interval);
    const auto bursts = static_cast<std::uint32_t>((work + more) / length);
    program.phases.push_back({.memory = sample.memory, .burst = 0, .bursts = 0, .begins = sample.at});
    if (bursts > 0) {
      // A little early: what comes when the next phase begins would not come at all.
      const auto first = static_cast<Nanos>((length - work) / sample.duty) - kMicrosecond;
      program.phases.push_back({.memory = sample.memory,
                                .burst = burst,
                                .bursts = bursts,
                                .gap = Span::Exactly(static_cast<Nanos>(length / sample.duty)),
                                .open = true,
                                .begins = sample.at + std::max<Nanos>(0, first)});
    }
    work += more - bursts * length;
  }
  program.phases.push_back({.burst = 0, .bursts = 0, .begins = end});
  program.repeats = 1;
}

void AddArrivals(const Tenant& tenant, Nanos service, Program& program) {
  const Arrivals& arrivals = tenant.arrivals;
  program.phases.clear();
  for (std::size_t i = 0; i < arrivals.times.size(); ++i) {
    const double longer = tenant.service > 0 ? static_cast<double>(service) / static_cast<double>(tenant.service) : 1;
    const Nanos length =
        arrivals.services.empty() ? service : static_cast<Nanos>(longer * static_cast<double>(arrivals.services[i]));
    program.phases.push_back(
        {.memory = tenant.memory, .burst = length, .bursts = 1, .open = true, .begins = arrivals.times[i]});
  }
  if (!program.phases.empty() && program.phases.front().begins > 0)
    program.phases.insert(program.phases.begin(), {.memory = tenant.memory, .burst = 0, .bursts = 0, .begins = 0});
  program.repeats = 1;
}

}  // namespace

Program ProgramOf(const Tenant& tenant, const Workload& workload, const GpuModel& gpu,
                  const sched::Placement::Seat& seat, Nanos burst) {
  Program program;
  program.terms.request = tenant.memory_request;
  if (!tenant.samples.empty()) {
    AddSeen(tenant, workload.interval, burst, program);
    return program;
  }
  const double sms = seat.in_space ? sched::PctOf(seat.way.size.sms) / 100 : 1;
  const Nanos service = ServiceOn(tenant, gpu, sms, seat.in_space);
  if (tenant.arrivals.kind == Arrivals::Kind::kTimes) {
    AddArrivals(tenant, service, program);
    return program;
  }
  Phase& phase = program.phases.front();
  phase.memory = tenant.memory;
  phase.burst = service;
  if (tenant.arrivals.kind == Arrivals::Kind::kClosed) {
    const double loop = BurstsAlone(tenant) > 0 ? kSecond / BurstsAlone(tenant) : 0;
    phase.gap = Span::Exactly(std::max<Nanos>(0, static_cast<Nanos>(loop) - tenant.service));
    return program;
  }
  const auto gap = static_cast<Nanos>(kSecond / tenant.arrivals.per_second);
  phase.open = true;
  phase.gap = tenant.arrivals.kind == Arrivals::Kind::kPoisson ? Span::About(gap) : Span::Exactly(gap);
  program.start = Span::Between(0, gap);
  return program;
}

Program BeginsBefore(Program program, Nanos record) {
  const Phase first = program.phases.front();
  if (first.begins == kNever) {
    program.start = Span::Between(program.start.least + record, program.start.most + record);
    return program;
  }
  for (Phase& phase : program.phases) {
    if (phase.begins != kNever) phase.begins += record;
  }
  if (first.begins == 0)
    program.phases.insert(program.phases.begin(), {.memory = first.memory, .burst = 0, .bursts = 0, .begins = 0});
  return program;
}

Nanos TimeToArrive(const Tenant& tenant, const GpuModel& gpu) {
  const auto bytes = static_cast<double>(tenant.memory + gpu.moves.context);
  const double seconds = 0.1 + 2 * bytes / gpu.moves.BytesPerSecond();
  return static_cast<Nanos>(seconds * kSecond);
}

sched::Shares SharesOf(const Tenant& tenant, const sched::Placement::Seat& seat, std::uint32_t space, bool steered) {
  sched::Shares shares{.request_pct = tenant.request_pct,
                       .limit_pct = tenant.limit_pct,
                       .weight = tenant.weight,
                       .priority = tenant.priority};
  const bool speed = tenant.goal && std::holds_alternative<sched::SpeedGoal>(*tenant.goal);
  if (speed || seat.in_space || (tenant.goal && !steered))
    shares.request_pct = std::min(tenant.limit_pct, std::max(shares.request_pct, sched::PctOf(seat.way.size.time)));
  if (seat.in_space) shares.space = {.number = space, .sm_pct = sched::PctOf(seat.way.size.sms)};
  return shares;
}

double BurstsDue(const Tenant& tenant, const Workload& workload, Nanos time, Nanos burst) {
  if (!tenant.samples.empty()) {
    double busy = 0;
    for (const UseSample& sample : tenant.samples) {
      if (sample.at < time) busy += sample.duty * static_cast<double>(workload.interval);
    }
    return std::floor(busy / static_cast<double>(burst) * (1 + 1e-9));
  }
  if (tenant.arrivals.kind != Arrivals::Kind::kTimes)
    return tenant.arrivals.per_second * static_cast<double>(time) / kSecond;
  return static_cast<double>(std::ranges::lower_bound(tenant.arrivals.times, time) - tenant.arrivals.times.begin());
}

}  // namespace tessera::plan
