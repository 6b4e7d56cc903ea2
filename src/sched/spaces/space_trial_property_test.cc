// Properties of SpaceTrial on a model of a space in virtual time. The cases are the same on every run;
// RC_PARAMS="seed=..." or "max_success=..." in the environment looks further.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstdlib>

#include "base/testing/same_cases.h"
#include "sched/spaces/space_trial.h"

namespace tessera::sched {
namespace {

// A space whose vGPUs run at some speed at once, and one after the other by weight in turns.
class Model {
 public:
  struct Program {
    Shares shares;
    double alone = 1000;   // submissions a second
    double at_once = 0.5;  // of that, beside the others
    bool busy = true;
    bool lies = false;
    std::optional<Goal> goal;
    double submitted = 0;
  };

  explicit Model(std::vector<Program> programs) : programs_(std::move(programs)) { Tell(); }

  void Tell() {
    std::vector<SpaceMember> members;
    for (std::size_t i = 0; i < programs_.size(); ++i)
      members.push_back({static_cast<VgpuId>(i), programs_[i].shares, programs_[i].goal});
    trial_.SetMembers(std::move(members), now_);
  }

  void Run(Nanos time) {
    for (const Nanos end = now_ + time; now_ < end;) {
      const Nanos step = std::min(std::max<Nanos>(trial_.NextDeadline() - now_, 1), end - now_);
      if (trial_.mode() != trial_.choice().mode) other_ += step;
      Work(step);
      now_ += step;
      trial_.Advance(figures_, now_);
      if (trial_.choice().mode != chosen_) {
        ++changes_;
        chosen_ = trial_.choice().mode;
      }
    }
  }

  // The speed at once over that in turns, as the policy is to find it.
  double Gain() const {
    double sum = 0, weights = 0;
    for (const Program& program : programs_) {
      if (!program.busy) continue;
      sum += program.shares.weight * std::log(std::clamp(program.at_once / TurnOf(program), 0.25, 4.0));
      weights += program.shares.weight;
    }
    return std::exp(sum / weights);
  }
  Program& operator[](std::size_t i) { return programs_[i]; }
  std::size_t size() const { return programs_.size(); }
  const SpaceTrial& trial() const { return trial_; }
  Nanos now() const { return now_; }
  Nanos other() const { return other_; }  // in the mode that was not chosen
  int changes() const { return changes_; }

  double TurnOf(const Program& program) const {
    double weights = 0;
    for (const Program& each : programs_) weights += each.busy ? each.shares.weight : 0;
    return program.shares.weight / weights;
  }

 private:
  void Work(Nanos step) {
    const bool at_once = trial_.mode() == SpaceMode::kAtOnce;
    figures_.passed += step;
    figures_.had += step;
    for (std::size_t i = 0; i < programs_.size(); ++i) {
      Program& program = programs_[i];
      SpaceProgress& progress = figures_.members[static_cast<VgpuId>(i)];
      progress.works = program.busy;
      if (!program.busy) continue;
      const double turn = TurnOf(program);
      const auto ran = at_once ? step : static_cast<Nanos>(turn * static_cast<double>(step));
      progress.ran += ran;
      progress.waited += step - ran;
      program.submitted += program.alone * (at_once ? program.at_once : turn) * static_cast<double>(step) / kSecond;
      progress.submissions =
          program.lies ? *rc::gen::arbitrary<std::uint64_t>() : static_cast<std::uint64_t>(program.submitted);
      progress.reached = now_ + step;
    }
  }

  std::vector<Program> programs_;
  SpaceTrial trial_;
  SpaceFigures figures_;
  SpaceMode chosen_ = SpaceMode::kAtOnce;
  Nanos now_ = kSecond;
  Nanos other_ = 0;
  int changes_ = 0;
};

std::vector<Model::Program> AnyPrograms() {
  std::vector<Model::Program> programs(*rc::gen::inRange<std::size_t>(2, 6));
  for (Model::Program& program : programs) {
    program.shares.weight = *rc::gen::inRange<std::uint32_t>(20, 500);
    program.shares.space = {.number = 1, .sm_pct = *rc::gen::inRange(5, 60) * 1.0};
    program.alone = *rc::gen::inRange(2000, 100'000);
    program.at_once = *rc::gen::inRange(5, 101) / 100.0;
  }
  programs[0].goal = SpeedGoal{1};
  return programs;
}

bool Right(Model& model) {
  const double gain = model.Gain();
  if (std::abs(gain / kLeastGain - 1) < 0.02) return true;  // either
  return model.trial().choice().mode == (gain > kLeastGain ? SpaceMode::kAtOnce : SpaceMode::kInTurns);
}

// It begins after a second and takes less than three; when speeds change, it finds out at the next trial.
RC_GTEST_PROP(SpaceTrialProperty, TheBetterModeIsFoundInBoundedTime, ()) {
  Model model(AnyPrograms());
  model.Run(5 * kSecond);
  RC_ASSERT(Right(model));
  const int changes = *rc::gen::inRange(1, 4);
  for (int n = 0; n < changes; ++n) {
    for (std::size_t i = 0; i < model.size(); ++i) model[i].at_once = *rc::gen::inRange(5, 101) / 100.0;
    model.Run(model.trial().NextDeadline() - model.now() + 5 * kSecond);
    RC_ASSERT(Right(model));
  }
}

RC_GTEST_PROP(SpaceTrialProperty, GoalsGoBeforeSpeed, ()) {
  std::vector<Model::Program> programs = AnyPrograms();
  for (Model::Program& program : programs) {
    program.shares.priority = *rc::gen::inRange<std::uint32_t>(7, 9);
    if (*rc::gen::arbitrary<bool>()) program.goal = SpeedGoal{*rc::gen::inRange(5, 100) * 1.0};
  }
  Model model(programs);
  const auto missed = [&](std::uint32_t priority, auto speed) {
    int count = 0;
    for (const Model::Program& program : programs) {
      if (!program.goal || program.shares.priority != priority) continue;
      const double part = std::get<SpeedGoal>(*program.goal).part();
      if (std::abs(speed(program) / part - 0.98) < 0.02) RC_DISCARD("at the edge");
      count += speed(program) < part ? 1 : 0;
    }
    return count;
  };
  const auto all = [&](auto speed) { return std::pair(missed(7, speed), missed(8, speed)); };
  const auto at_once = all([](const auto& program) { return program.at_once; });
  const auto in_turns = all([&](const auto& program) { return model.TurnOf(program); });
  model.Run(5 * kSecond);
  const SpaceChoice& choice = model.trial().choice();
  if (at_once == in_turns) {
    RC_ASSERT(Right(model));
  } else {
    RC_ASSERT(choice.mode == (at_once < in_turns ? SpaceMode::kAtOnce : SpaceMode::kInTurns));
  }
  const auto [first, second] = std::min(at_once, in_turns);
  RC_ASSERT(choice.missed.size() == static_cast<std::size_t>(first + second));
}

// At most a second in ten passes in the other mode, whatever programs do or say, and whoever comes and goes.
RC_GTEST_PROP(SpaceTrialProperty, TrialsCostLittle, ()) {
  Model model(AnyPrograms());
  const Nanos begin = model.now();
  const int events = *rc::gen::inRange(1, 200);
  for (int n = 0; n < events; ++n) {
    const auto i = *rc::gen::inRange<std::size_t>(0, model.size());
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        model[i].busy = !model[i].busy;
        break;
      case 1:
        model[i].lies = !model[i].lies;
        break;
      case 2:
        model[i].shares.weight = *rc::gen::inRange<std::uint32_t>(20, 500);
        model.Tell();
        break;
      default:
        model[i].at_once = *rc::gen::inRange(5, 101) / 100.0;
    }
    model.Run(*rc::gen::inRange<Nanos>(0, 5 * kSecond));
    const Nanos time = model.now() - begin;
    RC_ASSERT(model.other() <= SpaceTrial::kLeg * (1 + time / SpaceTrial::kFirstInterval));
  }
}

// Without a change the trials become rare, and nothing moves.
RC_GTEST_PROP(SpaceTrialProperty, WhatStaysTheSameIsTriedRarely, ()) {
  Model model(AnyPrograms());
  if (std::abs(model.Gain() / kLeastGain - 1) < 0.02) return;
  model.Run(3600 * kSecond);
  RC_ASSERT(model.changes() <= 1);
  RC_ASSERT(model.other() <= 13 * SpaceTrial::kLeg);
}

}  // namespace
}  // namespace tessera::sched
