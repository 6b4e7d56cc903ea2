// Shared by the tests of the policy of residency.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sched/turns/residency.h"

namespace tessera::sched {

// A server that makes everything true in no time, but for what a test says of it. The policy observes each change.
class ResidencyTest : public testing::Test {
 protected:
  static ResidencyDecision Runs(VgpuId id, std::uint64_t target) { return {id, target, true}; }
  static ResidencyDecision Stops(VgpuId id, std::uint64_t target) { return {id, target, false}; }

  void Add(VgpuId id, std::uint64_t demand, std::uint32_t weight = 100, std::uint32_t priority = 8) {
    policy_.Add(id, weight, priority, now_);
    facts_[id] = {.vgpu = id, .demand = demand};
    told_[id] = Runs(id, 0);
    Observe();
  }

  void AddActive(VgpuId id, std::uint64_t demand, std::uint32_t weight = 100, std::uint32_t priority = 8) {
    Add(id, demand, weight, priority);
    Active(id);
    Obey();
  }

  void Update(VgpuId id, std::uint32_t weight, std::uint32_t priority) {
    policy_.Update(id, weight, priority, now_);
    Observe();
  }

  void Remove(VgpuId id) {
    policy_.Remove(id, now_);
    facts_.erase(id);
    Observe();
  }

  void SetCapacity(std::uint64_t bytes) {
    capacity_ = bytes;
    Observe();
  }

  void Demand(VgpuId id, std::uint64_t bytes) {
    facts_.at(id).demand = bytes;
    Observe();
  }

  void Resident(VgpuId id, std::uint64_t bytes) {
    facts_.at(id).resident = bytes;
    Observe();
  }

  void Active(VgpuId id) {
    facts_.at(id).active = true;
    Observe();
  }

  void Idle(VgpuId id) {
    facts_.at(id).active = false;
    Observe();
  }

  void Ready(VgpuId id, Nanos moving, bool typical = true) {
    policy_.Ready(id, now_, moving, typical);
    Observe();
  }

  void Advance(Nanos by) {
    now_ += by;
    Observe();
  }

  void Observe() {
    std::vector<ResidencyFacts> facts;
    for (const auto& [_, known] : facts_) facts.push_back(known);
    const auto decided = policy_.Observe(facts, capacity_, now_);
    decided_.assign(decided.begin(), decided.end());
  }

  ResidencyDecision DecisionFor(VgpuId id) const { return *std::ranges::find(decided_, id, &ResidencyDecision::vgpu); }

  // Those that changed since the last call.
  std::vector<ResidencyDecision> TakeDecisions() {
    std::vector<ResidencyDecision> changed;
    for (const ResidencyDecision& decision : decided_) {
      if (std::exchange(told_.at(decision.vgpu), decision) != decision) changed.push_back(decision);
    }
    return changed;
  }

  // Takes the decisions and makes them true; `moving` is how long that took of each that waits for it.
  std::vector<ResidencyDecision> Obey(Nanos moving = 0) {
    const std::vector<ResidencyDecision> all = TakeDecisions();
    for (const ResidencyDecision& decision : all) {
      std::uint64_t& resident = facts_.at(decision.vgpu).resident;
      resident = decision.runs ? decision.target : std::min(resident, decision.target);
    }
    Observe();
    for (const ResidencyDecision& decision : all) {
      if (decision.runs) Ready(decision.vgpu, moving);
    }
    EXPECT_THAT(TakeDecisions(), testing::IsEmpty());
    return all;
  }

  Residency policy_;
  Nanos now_ = kSecond;
  std::uint64_t capacity_ = 40;
  std::map<VgpuId, ResidencyFacts> facts_;
  std::vector<ResidencyDecision> decided_;
  std::map<VgpuId, ResidencyDecision> told_;
};

}  // namespace tessera::sched
