#include "server/time/time_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::server {

// Best first. The last one can always serve.
const std::vector<TimeWays::Row>& TimeWays::Rows() {
  static const std::vector<Row> rows = {
      {.divider = Divider::kChannels,
       .name = "the channels' slices",
       .why_not = [](const TimeWays& ways) { return ways.WhyUnsteerable(); }},
      {.divider = Divider::kGates, .name = "tokens", .why_not = [](const TimeWays&) { return std::string(); }},
  };
  return rows;
}

bool TimeWays::Choose() {
  const Divider before = present_;
  passed_over_.clear();
  for (const Row& row : Rows()) {
    present_ = row.divider;
    std::string why = row.why_not(*this);
    if (why.empty()) break;
    passed_over_[row.divider] = std::move(why);
  }
  return present_ != before;
}

std::string TimeWays::WhyNot(Divider divider) const {
  const auto found = passed_over_.find(divider);
  return found == passed_over_.end() ? std::string() : found->second;
}

std::string TimeWays::Text() const {
  std::string text = std::ranges::find(Rows(), present_, &Row::divider)->name;
  for (const auto& [better, why] : passed_over_) text += ": " + why;
  return text;
}

// The channel server's reason, or that there are processes which use the GPU, and none of them obeys; empty: neither.
// One that obeys keeps its channels whatever the others do: they are stopped by their own gates.
std::string TimeWays::WhyUnsteerable() const {
  if (!channels_.Available(gpu_)) return channels_.Why(gpu_);
  std::string why = WhySpacesUnsteerable();
  if (!why.empty()) return why;
  for (const VGpu* vgpu : vgpus_) {
    for (const Process* process : vgpu->processes) {
      if (process->freeze.evades) {
        why = fmt::format("process {} ({}) went on while its channels were frozen", process->pid, process->who.program);
      } else if (channels_.Knows(process->pid, gpu_) || vgpu->spec.compute.space.number != 0) {
        return {};
      } else if (process->work.worked) {
        why = fmt::format("the channels of process {} ({}) are not known", process->pid, process->who.program);
      }
    }
  }
  return why;
}

// A space is steered as a whole, by the channels of its MPS server: nothing else can take it off the GPU.
std::string TimeWays::WhySpacesUnsteerable() const {
  for (const VGpu* vgpu : vgpus_) {
    const std::uint32_t number = vgpu->spec.compute.space.number;
    const bool works = std::ranges::any_of(vgpu->processes, [](const Process* each) { return each->work.worked; });
    if (number == 0 || !works) continue;
    const pid_t server = channels_.Table().ServerOf(number);
    if (server == 0) return fmt::format("the MPS server of space {} is not known", vgpu->spec.space);
    if (!channels_.Knows(server, gpu_))
      return fmt::format("the channels of MPS server {} of space {} are not known", server, vgpu->spec.space);
  }
  return {};
}

// A program without a shim has no gate.
GateRecord::Stop TimeWays::StopFor(const Process& process) const {
  using enum GateRecord::StoppedBy;
  if (process.who.guest) return {.by = kChannels};
  if (process.suspension.Holds()) return {.by = kGate, .believed = true};  // what it has queued must end
  if (!channels_.Knows(process.pid, gpu_)) return {.by = kGate, .believed = process.gate.stop.believed};
  return {.by = process.freeze.evades ? kBoth : kChannels};
}

}  // namespace tessera::server
