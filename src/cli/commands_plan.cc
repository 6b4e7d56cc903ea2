#include "base/duration.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/plan/advise.h"
#include "cli/plan/cluster.h"
#include "cli/plan/plan.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

struct PlanWords {
  std::string workload;
  std::string length;
  std::uint64_t seed = 1;
  bool advise = false;
  PlanChoices plan;
  AdviseChoices advice;
  ClusterChoices cluster;
  GenerateChoices example;
};

void AddPacking(CLI::App& app, PlanWords& words) {
  PlanChoices& plan = words.plan;
  app.add_option("--gpu", plan.gpu,
                 "type of the GPUs: its name, or a file of\n'tessera bench --gpu-model' (default h200)")
      ->type_name("TYPE");
  auto* gpus = app.add_option("--gpus", plan.gpus, "there are so many GPUs; who fits on none is left out")
                   ->type_name("N")
                   ->check(CLI::Range(1, 100000));
  app.add_flag("--fewest", plan.fewest, "as few GPUs as possible (default)")->excludes(gpus);
  auto* node = app.add_option("--gpus-per-node", plan.gpus_per_node,
                              "programs move between so many GPUs while they run, as\nwith rebalance.load (default "
                              "1: they stay)")
                   ->type_name("N")
                   ->check(CLI::Range(1, 64));
  app.add_option("--place-by", plan.place_by,
                 "with --gpus-per-node: they come to their nodes by\nthis earlier record, not by WORKLOAD itself")
      ->type_name("FILE")
      ->needs(node);
  app.add_option(
         "--policy", words.cluster.policy,
         "how they are packed: tessera (default), or what one\nwould do without it: exclusive, memory, time, fgd.\n"
         "With --nodes: tessera, random, dotprod, clustering,\npacking, bestfit, fgd")
      ->type_name("POLICY");
  app.add_option("--report", plan.report, "write a page of HTML with plots")->type_name("FILE");
  app.add_option("--seconds", plan.seconds, "search so long for fewer GPUs (default 10)")->type_name("DURATION");
  app.add_option("--burst", plan.burst, "GPU time of a burst, where only use is known (default\n100ms)")
      ->type_name("DURATION");
  app.add_option("--margin", plan.margin_pct, "give so much more than goals ask for (default 0)")
      ->type_name("PERCENT")
      ->check(CLI::Range(0, 100));
  app.add_option("--seed", words.seed, "of all that is random (default 1)")->type_name("N");
  app.add_flag("--no-simulation", plan.no_simulation, "pack only");
}

void AddCluster(CLI::App& app, ClusterChoices& cluster) {
  auto* nodes = app.add_option("--nodes", cluster.nodes,
                               "WORKLOAD is a list of pods, and this one of nodes: how\nmuch of their GPUs can pods "
                               "have that come in\nrandom order and stay?")
                    ->type_name("FILE");
  app.add_option("--seeds", cluster.seeds, "with --nodes: so many orders (default 1)")
      ->type_name("N")
      ->needs(nodes)
      ->check(CLI::Range(1, 1000));
  app.add_option("--arrive", cluster.arrive_pct,
                 "with --nodes: until pods asked for so much of the\nGPUs (default 130)")
      ->type_name("PERCENT")
      ->needs(nodes);
  app.add_option("--moves", cluster.moves_pct,
                 "with --nodes: move at most so many of the pods\n(default: 2 by tessera, else 0)")
      ->type_name("PERCENT")
      ->needs(nodes);
}

void AddExample(CLI::App& app, GenerateChoices& example, CLI::Option* workload) {
  auto* kind =
      app.add_option("--generate", example.kind, "write an example instead: genai, cluster,\ncluster-nodes or llm")
          ->type_name("KIND")
          ->excludes(workload);
  app.add_option("--count", example.count, "programs, pods, nodes or requests an hour of the\nexample")
      ->type_name("N")
      ->needs(kind);
  app.add_option("-o,--output", example.output, "file of the example (default -: stdout)")
      ->type_name("FILE")
      ->needs(kind);
}

void AddAdvice(CLI::App& app, PlanWords& words) {
  auto* advise =
      app.add_flag("--advise", words.advise,
                   "say what could be otherwise, by what vGPUs use:\nwhich are too large or too small, which "
                   "two should\nnot meet, which fit into one GPU. Changes nothing");
  app.add_option("--samples", words.advice.samples,
                 "with --advise: a CSV file of what vGPUs used\n(default: ask the daemon)")
      ->type_name("FILE")
      ->needs(advise);
  app.add_option("--prometheus", words.advice.prometheus,
                 "with --advise: a Prometheus that scrapes tesserad,\nsuch as http://localhost:9090")
      ->type_name("URL")
      ->needs(advise);
  app.add_option("--every", words.advice.every,
                 "with --advise: time of a sample (default 500ms of\nthe daemon, 5min of a Prometheus)")
      ->type_name("DURATION")
      ->needs(advise)
      ->check(Checked(ParseDuration));
}

Result<int> Run(const Common& common, PlanWords& words) {
  if (words.advise) {
    if (!words.workload.empty())
      return Fail(EINVAL, "--advise takes no WORKLOAD",
                  "name a file of use by --samples, or leave it out for the daemon");
    words.advice.length = words.length;
    return Advise(common, words.advice);
  }
  if (!words.example.kind.empty()) {
    words.example.seed = words.seed;
    words.example.length = words.length;
    return GenerateWorkload(words.example);
  }
  if (words.workload.empty())
    return Fail(EINVAL, "WORKLOAD is required", "name a file, or make one: tessera plan --generate genai -o day.csv");
  if (!words.cluster.nodes.empty()) {
    words.cluster.pods = words.workload;
    return PlanPods(common, words.cluster);
  }
  words.plan.workload = words.workload;
  words.plan.policy = words.cluster.policy;
  words.plan.seed = words.seed;
  if (!words.length.empty()) words.plan.length = words.length;
  return Plan(common, words.plan);
}

}  // namespace

void AddPlanCommand(CommandLine& line) {
  CLI::App& plan =
      AddCommand(line.app, "plan",
                 "Say how many GPUs a workload needs, and what each tenant would get\n"
                 "Packs the tenants, then runs them in virtual time under the schedulers of the daemon. The\n"
                 "workload is a mix (TOML), metered use or arrivals (CSV), or a trace of 'tessera trace'. No GPU\n"
                 "and no daemon is needed. With --advise, it says instead which vGPUs could be smaller, larger or\n"
                 "elsewhere, by what they used; it prints the commands that change it, and runs none of them.",
                 "Examples:\n"
                 "  tessera plan mix.toml --gpu h200\n"
                 "  tessera plan day.csv --gpu l40s --report plan.html\n"
                 "  tessera plan trace.json --gpus 2\n"
                 "  tessera plan --generate genai -o day.csv\n"
                 "  tessera plan pods.csv --nodes nodes.csv --policy fgd --seeds 10\n"
                 "  tessera plan --advise --for 10min\n"
                 "  tessera plan --advise --prometheus http://localhost:9090 --for 168h\n"
                 "\n"
                 "Exit status:\n"
                 "  0 if all tenants have a place and all goals are kept, 1 if not.");
  auto& words = line.Keep<PlanWords>();
  auto* workload =
      plan.add_option("WORKLOAD", words.workload, "file: a mix, use, arrivals, a trace; with --nodes pods");
  AddPacking(plan, words);
  plan.add_option(
          "--for", words.length,
          "simulate so long, if the workload is no record\n(default 60s); length of the example; with --advise:\n"
          "look so long at the daemon (default 10s), or back in\nthe Prometheus (default 24h)")
      ->type_name("DURATION")
      ->check(Checked(ParseDuration));
  AddCluster(plan, words.cluster);
  AddExample(plan, words.example, workload);
  AddAdvice(plan, words);
  AddCommon(plan, line.common, kAll);
  Does(line, plan, [&line, &words] { return Run(line.common, words); });
}

}  // namespace tessera::cli
