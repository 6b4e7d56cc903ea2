#include "plan/fleet/evaluate.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include "plan/fleet/needs.h"
#include "plan/fleet/node_balancer.h"
#include "plan/fleet/programs.h"
#include "plan/simulator.h"

namespace tessera::plan {
namespace {

constexpr int kParts = 20;  // of the measured time, for intervals of confidence

// Processor time of the calling thread: others may use the processor, too.
Nanos ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

// GPUs that are simulated together, because tenants lie on several of them or move between those of a node.
std::vector<std::vector<std::size_t>> Islands(const FleetPlan& plan, std::size_t gpus_per_node) {
  std::vector<std::size_t> of(plan.gpus.size());
  for (std::size_t gpu = 0; gpu < of.size(); ++gpu) of[gpu] = gpu / gpus_per_node * gpus_per_node;
  for (const auto& seat : plan.placement.seats) {
    for (std::size_t i = 1; i < seat.gpus.size(); ++i)
      std::ranges::replace(of, std::size_t{of[seat.gpus[i]]}, of[seat.gpus[0]]);
  }
  std::map<std::size_t, std::vector<std::size_t>> islands;
  for (std::size_t gpu = 0; gpu < of.size(); ++gpu) islands[of[gpu]].push_back(gpu);
  std::vector<std::vector<std::size_t>> all;
  for (auto& [_, gpus] : islands) all.push_back(std::move(gpus));
  return all;
}

// One island in virtual time.
class IslandRun {
 public:
  IslandRun(const Workload& workload, const PlanQuestion& question, const FleetPlan& plan,
            const std::vector<std::size_t>& gpus)
      : workload_(workload),
        question_(question),
        plan_(plan),
        gpus_(gpus),
        simulator_(Specs(), question.seed),
        balancer_(simulator_, question.gpu, gpus.size()) {}

  Result<void> Run() {
    const bool record = workload_.length > 0;
    std::vector<std::size_t> tenants;
    for (const std::size_t gpu : gpus_) {
      for (const std::size_t tenant : plan_.gpus[gpu].tenants) {
        if (plan_.placement.seats[tenant].gpus.front() == gpu) tenants.push_back(tenant);
      }
    }
    // Those who were there when the record began had come before, one after the other: who came first has been idle
    // for the longest time.
    if (record) {
      std::ranges::sort(tenants);
      for (const std::size_t tenant : tenants) begins_ += TimeToArrive(workload_.tenants[tenant], question_.gpu);
    }
    for (const std::size_t tenant : tenants) {
      if (auto added = Add(tenant); !added) return added;
      if (record) simulator_.Run(TimeToArrive(workload_.tenants[tenant], question_.gpu));
    }
    const Nanos length = record ? workload_.length : question_.simulate;
    // What begins at once needs a while until each has its part; a record begins as it began.
    const Nanos settles = record ? 0 : length / 10;
    simulator_.Run(settles);
    simulator_.StartMeasuring();
    std::map<std::size_t, std::vector<double>> speeds;
    std::map<std::size_t, std::size_t> before;
    for (int part = 0; part < kParts; ++part) {
      if (auto ran = RunFor((length - settles) / kParts); !ran) return ran;
      if (!simulator_.violations().empty()) {
        return Fail(EPROTO, "a scheduler failed in the simulation: " + simulator_.violations().front(),
                    "report this as a defect, with the workload and the command");
      }
      for (const std::size_t tenant : tenants_) {
        const std::size_t done = simulator_.BurstsOf(IdOf(tenant)).done();
        speeds[tenant].push_back(static_cast<double>(done - before[tenant]));
        before[tenant] = done;
      }
    }
    std::map<std::size_t, Attainment> got;
    for (const std::size_t tenant : tenants_) got[tenant] = Use(tenant, speeds[tenant], length - settles);
    if (record) {
      if (auto drained = Drain(); !drained) return drained;
    }
    for (const std::size_t tenant : tenants_) attained_[tenant] = Judge(tenant, std::move(got[tenant]));
    return {};
  }

  const std::map<std::size_t, Attainment>& attained() const { return attained_; }
  GpuFigures FiguresOf(std::size_t index) const { return simulator_.OfGpu(index); }
  std::uint64_t events() const { return simulator_.events(); }
  std::size_t moves() const { return balancer_.moves(); }
  Nanos simulated() const { return simulator_.now() - begins_; }

 private:
  // What was due and is late ends later: it counts as late as it is.
  Result<void> Drain() {
    constexpr Nanos kStep = 10 * kSecond, kMost = 600 * kSecond;
    const auto pending = [&](std::size_t tenant) {
      return static_cast<double>(simulator_.BurstsOf(IdOf(tenant)).done()) <
             BurstsDue(workload_.tenants[tenant], workload_, workload_.length, question_.burst) - 1;
    };
    for (Nanos more = 0; more < kMost && std::ranges::any_of(tenants_, pending); more += kStep) {
      if (auto ran = RunFor(kStep); !ran) return ran;
    }
    return {};
  }

  Result<void> RunFor(Nanos length) {
    if (question_.gpus_per_node == 1) {
      simulator_.Run(length);
      return {};
    }
    for (const Nanos end = simulator_.now() + length; simulator_.now() < end && simulator_.violations().empty();) {
      simulator_.Run(std::min(sched::Balancer::kEvery, end - simulator_.now()));
      if (auto looked = balancer_.Look(); !looked) return looked;
    }
    return {};
  }

  static sched::VgpuId IdOf(std::size_t tenant) { return static_cast<sched::VgpuId>(tenant + 1); }

  std::vector<GpuSpec> Specs() const {
    std::vector<GpuSpec> specs;
    for (const std::size_t gpu : gpus_) {
      const auto& tenants = plan_.gpus[gpu].tenants;
      const bool spaces =
          std::ranges::any_of(tenants, [&](std::size_t tenant) { return plan_.placement.seats[tenant].in_space; });
      specs.push_back(question_.gpu.Spec(spaces ? TimeBy::kTokens : TimeBy::kSteering));
      if (question_.policy == PlanPolicy::kExclusive) specs.back().memory = 0;
    }
    return specs;
  }

  Result<void> Add(std::size_t index) {
    const Tenant& tenant = workload_.tenants[index];
    const sched::Placement::Seat& seat = plan_.placement.seats[index];
    std::uint32_t space = 0;
    if (seat.in_space) space = spaces_.try_emplace(tenant.group, spaces_.size() + 1).first->second;
    std::vector<std::size_t> on;
    for (const std::size_t gpu : seat.gpus)
      on.push_back(static_cast<std::size_t>(std::ranges::find(gpus_, gpu) - gpus_.begin()));
    auto program = ProgramOf(tenant, workload_, question_.gpu, seat, question_.burst);
    if (begins_ > 0) program = BeginsBefore(std::move(program), begins_ - simulator_.now());
    tenants_.push_back(index);
    balancer_.Add(IdOf(index));
    const bool spaces = std::ranges::any_of(plan_.gpus[seat.gpus.front()].tenants,
                                            [&](std::size_t other) { return plan_.placement.seats[other].in_space; });
    sched::Shares shares = SharesOf(tenant, seat, space, !spaces);
    // A speed is kept by the request that it was packed with.
    bool steered = tenant.goal && std::holds_alternative<sched::LatencyGoal>(*tenant.goal);
    // Who packs by memory alone promises no time, and those on a GPU may ask for more than there is.
    if (question_.policy == PlanPolicy::kMemory) {
      shares.request_pct = 0;
      steered = false;
    }
    return simulator_.Add(IdOf(index), shares, std::move(program), on, steered ? tenant.goal : std::nullopt);
  }

  // What the tenant had until now.
  Attainment Use(std::size_t index, std::vector<double> parts, Nanos time) const {
    const Tenant& tenant = workload_.tenants[index];
    const PartFigures part = simulator_.Of(IdOf(index));
    const BurstFigures& bursts = simulator_.BurstsOf(IdOf(index));
    Attainment got{.placed = true, .gpu_pct = part.ExecutedPct(), .bursts = bursts.done()};
    got.waited_memory_pct = Percent(part.waited_memory, part.measured);
    got.bytes_moved = part.bytes_in + part.bytes_out;
    const double due = BurstsDue(tenant, workload_, time, question_.burst);
    if (due > 0) {
      const double speed = std::min(1.0, static_cast<double>(bursts.done()) / due);
      got.speed = {speed, speed, speed};
    } else if (const double alone = BurstsAlone(tenant); alone > 0) {
      const double each = alone * static_cast<double>(time) / kSecond / kParts;
      for (double& done : parts) done /= each;
      got.speed = EstimateMean(parts);
    }
    return got;
  }

  // With the latencies of all bursts that have ended by now.
  Attainment Judge(std::size_t index, Attainment got) const {
    const BurstFigures& bursts = simulator_.BurstsOf(IdOf(index));
    got.p50 = bursts.Quantile(0.5);
    got.p99 = bursts.Quantile(0.99);
    JudgeGoal(workload_.tenants[index], bursts, got);
    if (!got.kept) got.why = WhyOutOfReach(workload_.tenants[index], question_.gpu);
    return got;
  }

  static void JudgeGoal(const Tenant& tenant, const BurstFigures& bursts, Attainment& got) {
    got.in_time = {1, 1, 1};
    if (!tenant.goal) {
      got.verdict = "no goal";
      return;
    }
    if (const auto* latency = std::get_if<sched::LatencyGoal>(&*tenant.goal)) {
      const auto good = static_cast<std::uint64_t>(
          std::ranges::count_if(bursts.latencies, [&](Nanos each) { return each <= latency->time; }));
      got.in_time = EstimatePart(good, bursts.done());
      got.kept = bursts.done() > 0 && got.in_time.high >= 1 - latency->violations();
    } else {
      constexpr double kRounding = 0.0005;
      got.kept = std::max(got.speed.value, got.speed.high) >=
                 (1 - kSpeedTolerance - kRounding) * std::get<sched::SpeedGoal>(*tenant.goal).part();
    }
    got.verdict = got.kept ? "kept" : "missed";
  }

  const Workload& workload_;
  const PlanQuestion& question_;
  const FleetPlan& plan_;
  const std::vector<std::size_t>& gpus_;
  Simulator simulator_;
  NodeBalancer balancer_;
  Nanos begins_ = 0;                             // the record, in the simulator's time
  std::map<std::string, std::uint32_t> spaces_;  // number of each group's space
  std::vector<std::size_t> tenants_;
  std::map<std::size_t, Attainment> attained_;
};

}  // namespace

Result<void> Evaluate(const Workload& workload, const PlanQuestion& question, FleetPlan& plan) {
  const auto islands = Islands(plan, question.gpus_per_node);
  plan.attained.assign(workload.tenants.size(), {.kept = false, .verdict = "not placed"});
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // guards `plan` and `failed`
  std::optional<Error> failed;
  const FleetPlan& placed = plan;
  const auto work = [&] {
    for (std::size_t i = next++; i < islands.size(); i = next++) {
      const Nanos began = ThreadTime();
      IslandRun run(workload, question, placed, islands[i]);
      const auto ran = run.Run();
      const std::lock_guard lock(mutex);
      if (!ran) {
        failed = ran.error();
        continue;
      }
      for (const auto& [tenant, got] : run.attained()) plan.attained[tenant] = got;
      for (std::size_t gpu = 0; gpu < islands[i].size(); ++gpu) plan.gpus[islands[i][gpu]].figures = run.FiguresOf(gpu);
      plan.events += run.events();
      plan.moves_simulated += run.moves();
      plan.simulated = std::max(plan.simulated, run.simulated());
      plan.simulating += ThreadTime() - began;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
    work();
  }
  if (failed) return std::unexpected(*failed);
  return {};
}

}  // namespace tessera::plan
