// The same plan in three forms.
#pragma once

#include <string>
#include <vector>

#include "client/json.h"
#include "plan/fleet/fleet_plan.h"

namespace tessera::cli {

// GPUs that another policy needs for the workload.
struct OtherPolicy {
  std::string name;
  std::size_t gpus = 0;
};

struct PlanAnswer {
  const plan::Workload& workload;
  const plan::PlanQuestion& question;
  const plan::FleetPlan& plan;
  std::vector<OtherPolicy> others;
};

// "memory", "tessera", …; EINVAL for another word.
Result<plan::PlanPolicy> ParsePolicy(const std::string& name);
std::string PolicyName(plan::PlanPolicy policy);

// How often programs move between GPUs: a sentence without a full stop; empty: they stay where they are.
std::string MovesText(const PlanAnswer& answer);

// Tables, for people.
std::string PlanText(const PlanAnswer& answer, bool colour);
// docs/plan.md describes the fields.
client::Json PlanJson(const PlanAnswer& answer);
// One page of HTML with plots, without references to anything outside of it.
std::string PlanHtml(const PlanAnswer& answer);

}  // namespace tessera::cli
