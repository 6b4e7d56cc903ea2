#include "cli/plan/advise_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/size.h"
#include "base/text/counted.h"
#include "cli/terminal/output.h"
#include "cli/terminal/printable.h"

namespace tessera::cli {
namespace {

using client::Json;
using sched::Advice;

// All that is to change of one vGPU.
struct AdvisedChange {
  std::optional<double> request_pct, limit_pct;
  std::optional<std::uint64_t> memory_request;
};

std::string PercentWord(double pct) { return Json(pct).dump(); }

// In the shell's quotes if it is more than a plain word: names come from files and from other machines.
std::string ShellWord(const std::string& text) {
  constexpr auto kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (!text.empty() && text[0] != '-' && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : Printable(text)) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string SetCommand(const sched::MeteredVgpu& vgpu, const AdvisedChange& change) {
  std::string line = "tessera vgpu set " + ShellWord(vgpu.name);
  if (change.request_pct || change.limit_pct) {
    const double limit = change.limit_pct.value_or(vgpu.limit_pct);
    line += " --compute " + FormatPercent(change.request_pct.value_or(vgpu.request_pct)) + ":" + FormatPercent(limit);
  }
  if (change.memory_request) line += " --memory-request " + std::to_string(*change.memory_request / kMiB) + "M";
  return line;
}

// What an annotation can change; the scheduler counts the compute request, so only another claim has another one.
void AddPodCommands(const sched::MeteredVgpu& vgpu, const PodOfVgpu& pod, const AdvisedChange& change,
                    std::vector<std::string>& lines) {
  Json config = Json::object();
  if (change.limit_pct) config["compute"]["limit"] = *change.limit_pct;
  if (change.memory_request) config["memory"]["request"] = std::to_string(*change.memory_request / kMiB) + "Mi";
  if (!config.empty()) {
    lines.push_back("kubectl annotate pod --namespace " + ShellWord(pod.namespace_name) + " " + ShellWord(pod.pod) +
                    " --overwrite gpu.tessera.dev/config='" + config.dump() + "'");
  }
  if (change.request_pct) {
    lines.push_back("# " + Printable(vgpu.name) + ": let the claim of pod " + Printable(pod.pod) +
                    " ask for compute: " + PercentWord(*change.request_pct));
  }
}

std::string PlaceOf(const sched::MeteredGpu& gpu) {
  return "GPU " + Printable(gpu.gpu) + (gpu.node.empty() ? "" : " of " + Printable(gpu.node));
}

}  // namespace

std::vector<std::string> AdviceCommands(const SeenFleet& seen, const std::vector<Advice>& advice) {
  std::map<std::size_t, AdvisedChange> changes;
  std::map<std::size_t, std::size_t> moves;
  for (const Advice& each : advice) {
    for (const Advice::Move& move : each.moves) moves[move.vgpu] = move.to;
    if (!each.request_pct && !each.limit_pct && !each.memory_request) continue;
    AdvisedChange& change = changes[each.vgpus.front()];
    if (each.request_pct) change.request_pct = each.request_pct;
    if (each.limit_pct) change.limit_pct = each.limit_pct;
    if (each.memory_request) change.memory_request = each.memory_request;
  }
  std::vector<std::string> lines;
  std::string node;
  for (const auto& [index, change] : changes) {
    const sched::MeteredVgpu& vgpu = seen.fleet.vgpus[index];
    if (const auto pod = seen.pods.find(index); pod != seen.pods.end()) {
      AddPodCommands(vgpu, pod->second, change, lines);
      continue;
    }
    const std::string& its = seen.fleet.gpus[vgpu.gpu].node;
    if (its != node) lines.push_back("# on " + Printable(its));
    node = its;
    lines.push_back(SetCommand(vgpu, change));
  }
  for (const auto& [index, to] : moves) {
    lines.push_back("# " + Printable(seen.fleet.vgpus[index].name) + ": start it on " + PlaceOf(seen.fleet.gpus[to]) +
                    " the next time");
  }
  return lines;
}

std::string AdviceText(const SeenFleet& seen, const std::vector<Advice>& advice) {
  std::string text = Counted(seen.fleet.vgpus.size(), "vGPU") + " on " + Counted(seen.fleet.gpus.size(), "GPU") + ", " +
                     Printable(seen.by) + ": " +
                     (advice.empty() ? "nothing to advise" : Counted(advice.size(), "piece") + " of advice") + "\n";
  for (const Advice& each : advice)
    text += "\n  " + std::string(NameOf(each.kind)) + "\n    " + Printable(each.reason) + "\n";
  const auto commands = AdviceCommands(seen, advice);
  if (!commands.empty()) text += "\nTo apply:\n";
  for (const std::string& line : commands) text += "  " + line + "\n";
  return text;
}

Json AdviceJson(const SeenFleet& seen, const std::vector<Advice>& advice) {
  Json all = Json::array();
  for (const Advice& each : advice) {
    Json json = {
        {"kind", NameOf(each.kind)}, {"reason", each.reason}, {"vgpus", Json::array()}, {"figures", Json::object()}};
    for (const std::size_t index : each.vgpus) {
      const sched::MeteredVgpu& vgpu = seen.fleet.vgpus[index];
      const sched::MeteredGpu& gpu = seen.fleet.gpus[vgpu.gpu];
      json["vgpus"].push_back({{"name", vgpu.name}, {"node", gpu.node}, {"gpu", gpu.gpu}});
    }
    for (const auto& [name, value] : each.figures) json["figures"][name] = value;
    if (each.request_pct) json["change"]["compute_request"] = *each.request_pct;
    if (each.limit_pct) json["change"]["compute_limit"] = *each.limit_pct;
    if (each.memory_request) json["change"]["memory_request"] = *each.memory_request;
    for (const Advice::Move& move : each.moves) {
      const sched::MeteredGpu& to = seen.fleet.gpus[move.to];
      json["moves"].push_back({{"vgpu", seen.fleet.vgpus[move.vgpu].name}, {"node", to.node}, {"gpu", to.gpu}});
    }
    all.push_back(std::move(json));
  }
  return {{"vgpus", seen.fleet.vgpus.size()},
          {"gpus", seen.fleet.gpus.size()},
          {"seen", seen.by},
          {"advice", std::move(all)},
          {"commands", AdviceCommands(seen, advice)}};
}

}  // namespace tessera::cli
