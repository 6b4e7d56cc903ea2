#include "cli/plan/plan_answer.h"
#include "sched/goals/goal.h"
#include "sched/packing/rectangle.h"

namespace tessera::cli {
namespace {

using client::Json;

double Milliseconds(Nanos time) { return static_cast<double>(time) / kMillisecond; }

Json Place(const PlanAnswer& answer, std::size_t index) {
  const plan::Tenant& tenant = answer.workload.tenants[index];
  const auto& seat = answer.plan.placement.seats[index];
  const double time = sched::PctOf(seat.way.size.time);
  return {{"name", tenant.name},
          {"space", seat.in_space ? tenant.group : ""},
          {"sm_pct", seat.in_space ? sched::PctOf(seat.way.size.sms) : 100},
          {"request_pct", std::max(tenant.request_pct, time)},
          {"limit_pct", tenant.limit_pct}};
}

Json Gpu(const PlanAnswer& answer, std::size_t index) {
  const plan::GpuPlan& gpu = answer.plan.gpus[index];
  Json tenants = Json::array();
  for (const std::size_t tenant : gpu.tenants) tenants.push_back(Place(answer, tenant));
  Json json = {{"index", index},
               {"tenants", tenants},
               {"memory", gpu.memory},
               {"memory_promised", gpu.promised},
               {"time_promised", gpu.time},
               {"over", gpu.over},
               {"binds", gpu.binds}};
  if (gpu.figures.measured > 0) {
    json["busy"] = gpu.figures.ExecutedPct() / 100;
    json["moving"] = gpu.figures.MovingPct() / 100;
    json["switches_per_second"] = gpu.figures.PerSecond(gpu.figures.switches);
    json["moved_in_bytes"] = gpu.figures.bytes_in;
    json["moved_out_bytes"] = gpu.figures.bytes_out;
  }
  return json;
}

Json Tenant(const PlanAnswer& answer, std::size_t index) {
  const plan::Tenant& tenant = answer.workload.tenants[index];
  Json json = {{"name", tenant.name},
               {"gpus", answer.plan.placement.seats[index].gpus},
               {"goal", tenant.goal ? Json(sched::FormatGoal(*tenant.goal)) : Json(nullptr)}};
  if (answer.plan.attained.empty()) return json;
  const plan::Attainment& got = answer.plan.attained[index];
  const auto estimate = [](const plan::Estimate& of) {
    return Json{{"value", of.value}, {"low", of.low}, {"high", of.high}};
  };
  json["verdict"] = got.verdict;
  json["why"] = got.why;
  json["kept"] = got.kept;
  json["duty"] = got.gpu_pct / 100;
  json["bursts"] = got.bursts;
  json["p50_ms"] = Milliseconds(got.p50);
  json["p99_ms"] = Milliseconds(got.p99);
  json["speed"] = estimate(got.speed);
  json["in_time"] = estimate(got.in_time);
  json["waited_for_memory"] = got.waited_memory_pct / 100;
  json["moved_bytes"] = got.bytes_moved;
  return json;
}

}  // namespace

Json PlanJson(const PlanAnswer& answer) {
  Json gpus = Json::array(), tenants = Json::array(), others = Json::object();
  for (std::size_t i = 0; i < answer.plan.gpus.size(); ++i) gpus.push_back(Gpu(answer, i));
  for (std::size_t i = 0; i < answer.workload.tenants.size(); ++i) tenants.push_back(Tenant(answer, i));
  for (const OtherPolicy& other : answer.others) others[other.name] = other.gpus;
  return {{"workload", answer.workload.title},
          {"notes", answer.workload.notes},
          {"gpu",
           {{"name", answer.question.gpu.name},
            {"title", answer.question.gpu.title},
            {"source", answer.question.gpu.source}}},
          {"policy", PolicyName(answer.question.policy)},
          {"gpus_needed", answer.plan.gpus.size()},
          {"first_fit", answer.plan.first_fit},
          {"gpus_per_node", answer.question.gpus_per_node},
          {"overfull", answer.plan.overfull},
          {"moves", answer.plan.moves},
          {"moves_simulated", answer.plan.moves_simulated},
          {"others", others},
          {"refused", answer.plan.refused},
          {"crowded", answer.plan.crowded},
          {"over", answer.plan.over},
          {"tenants_over", answer.plan.pods_over},
          {"events", answer.plan.events},
          {"simulated_s", static_cast<double>(answer.plan.simulated) / kSecond},
          {"simulating_s", static_cast<double>(answer.plan.simulating) / kSecond},
          {"gpus", gpus},
          {"tenants", tenants}};
}

}  // namespace tessera::cli
