#include "cli/plan/plan.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "base/duration.h"
#include "base/whole_file.h"
#include "cli/plan/plan_answer.h"
#include "cli/terminal/output.h"
#include "plan/fleet/fleet_plan.h"
#include "plan/generate/generate.h"
#include "plan/input/read_workload.h"

namespace tessera::cli {
namespace {

Result<plan::PlanQuestion> QuestionOf(const PlanChoices& choices) {
  plan::PlanQuestion question;
  auto gpu = plan::FindGpuModel(choices.gpu);
  if (!gpu) return std::unexpected(gpu.error());
  question.gpu = std::move(*gpu);
  const auto policy = ParsePolicy(choices.policy);
  if (!policy) return std::unexpected(policy.error());
  question.policy = *policy;
  question.gpus = choices.gpus;
  question.gpus_per_node = choices.gpus_per_node;
  question.margin = choices.margin_pct / 100;
  question.seed = choices.seed;
  question.simulates = !choices.no_simulation;
  for (const auto& [text, into, name] : {std::tuple(&choices.seconds, &question.search, "--seconds"),
                                         std::tuple(&choices.length, &question.simulate, "--for"),
                                         std::tuple(&choices.burst, &question.burst, "--burst")}) {
    const auto time = ParseDuration(*text);
    if (!time) return Fail(time.error().code, std::string(name) + ": " + time.error().message, time.error().hint);
    *into = *time;
  }
  if (!choices.place_by.empty()) {
    auto earlier = plan::ReadWorkload(choices.place_by, {});
    if (!earlier) return std::unexpected(earlier.error());
    question.place_by = std::move(*earlier);
  }
  if (question.burst < kMillisecond) return Fail(ERANGE, "--burst: a burst takes at least 1 ms");
  if (question.simulate < kSecond) return Fail(ERANGE, "--for: simulate at least a second");
  return question;
}

std::vector<OtherPolicy> Others(const plan::Workload& workload, const plan::PlanQuestion& question) {
  std::vector<OtherPolicy> others;
  if (question.gpus > 0) return others;
  for (const plan::PlanPolicy policy :
       {plan::PlanPolicy::kExclusive, plan::PlanPolicy::kMemory, plan::PlanPolicy::kTime, plan::PlanPolicy::kFgd}) {
    if (policy != question.policy) others.push_back({PolicyName(policy), plan::GpusBy(workload, question.gpu, policy)});
  }
  return others;
}

}  // namespace

Result<int> Plan(const Common& common, const PlanChoices& choices) {
  const auto question = QuestionOf(choices);
  if (!question) return std::unexpected(question.error());
  const auto workload = plan::ReadWorkload(choices.workload, {});
  if (!workload) return std::unexpected(workload.error());
  const auto plan = plan::PlanFleet(*workload, *question);
  if (!plan) return std::unexpected(plan.error());
  const PlanAnswer answer{*workload, *question, *plan, Others(*workload, *question)};
  if (!choices.report.empty()) {
    constexpr mode_t kReadable = 0644;
    if (auto written = ReplaceFile(choices.report, PlanHtml(answer), kReadable, "choose another file with --report");
        !written)
      return std::unexpected(written.error());
  }
  if (common.json) {
    PrintJson(PlanJson(answer));
  } else {
    Print(PlanText(answer, IsTerminal(STDOUT_FILENO)));
  }
  bool missed = plan->refused > 0;
  for (const plan::Attainment& got : plan->attained) missed |= !got.kept;
  return missed ? 1 : 0;
}

Result<int> GenerateWorkload(const GenerateChoices& choices) {
  const auto kind = plan::ParseGeneratedKind(choices.kind);
  if (!kind) return std::unexpected(kind.error());
  plan::GenerateOptions options{.count = choices.count};
  if (!choices.length.empty()) {
    const auto length = ParseDuration(choices.length);
    if (!length) return std::unexpected(length.error());
    options.length = *length;
  }
  if (choices.output == "-") {
    if (auto written = plan::Generate(*kind, choices.seed, options, std::cout); !written)
      return std::unexpected(written.error());
    return 0;
  }
  std::ofstream file(choices.output, std::ios::binary | std::ios::trunc);
  if (!file) return FailErrno("cannot write " + choices.output, "choose another file with --output");
  if (auto written = plan::Generate(*kind, choices.seed, options, file); !written)
    return std::unexpected(written.error());
  if (!file.flush()) return FailErrno("cannot write " + choices.output, "choose another file with --output");
  return 0;
}

}  // namespace tessera::cli
