#include "cli/bench/gpu_figures.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "client/json_fields.h"

namespace tessera::cli {
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

std::string Decimals(double value, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

Nanos FromMicroseconds(double microseconds) { return std::llround(microseconds * kMicrosecond); }

// Of each of two that sweep at once, if it is up to the memory's bandwidth alone: a part of the speed alone.
double PartByBandwidth(const GpuFigures& figures) {
  const double demand = 2 * figures.sweeps->alone / figures.bandwidth;
  return std::min(1.0, 1 / demand);
}

}  // namespace

double SwitchMicroseconds(double slice_us, double alone, double together) {
  // In the time of two slices and two switches the programs do the work of two slices.
  return together <= 0 ? 0 : std::max(0.0, slice_us * (alone / together - 1));
}

std::string ModelName(const std::string& device) {
  std::string name;
  for (const char c : device) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter))
      name += static_cast<char>(std::tolower(letter));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  while (name.ends_with('-')) name.pop_back();
  for (const std::string_view maker : {"nvidia-", "tesla-"}) {
    if (name.starts_with(maker)) name.erase(0, maker.size());
  }
  return name;
}

plan::GpuModel ModelOf(const GpuFigures& figures) {
  plan::GpuModel model;
  model.name = figures.soft ? "soft" : ModelName(figures.device);
  model.title = figures.device;
  model.source = figures.soft
                     ? "measured " + figures.date + " on a soft GPU: figures of this machine's processor, and of no GPU"
                     : "measured " + figures.date + " by tessera bench --gpu-model, driver " + figures.driver;
  model.memory = figures.memory;
  model.sms = figures.sms;
  model.bandwidth = figures.bandwidth;
  if (figures.freeze_us) model.steering.freeze = FromMicroseconds(*figures.freeze_us);
  if (figures.thaw_us) model.steering.thaw = FromMicroseconds(*figures.thaw_us);
  if (figures.switch_us) model.steering.switch_cost = FromMicroseconds(*figures.switch_us);
  if (figures.out_per_s) model.moves.out_bytes_per_second = *figures.out_per_s;
  if (figures.in_per_s) model.moves.in_bytes_per_second = *figures.in_per_s;
  model.moves.context = figures.context;
  if (figures.compute) model.space_speed = std::clamp(figures.compute->Part(), 0.5, 1.0);
  return model;
}

std::vector<std::string> RemarksOn(const GpuFigures& figures) {
  std::vector<std::string> remarks;
  if (figures.soft) remarks.emplace_back("Of a soft GPU, which runs on the processor: this says nothing of any GPU.");
  if (figures.switch_us)
    remarks.push_back("switch_us by two programs with slices of " + Decimals(figures.slice_us / 1000, 1) + " ms.");
  if (figures.sweeps)
    remarks.push_back("Two programs that sweep memory at once in a space, each on half of the SMs, have " +
                      Decimals(figures.sweeps->Part(), 3) + " of their speed alone there; by bandwidth alone it is " +
                      Decimals(PartByBandwidth(figures), 3) + ".");
  for (const std::string& sentence : figures.missing) remarks.push_back(sentence);
  remarks.emplace_back(
      "Not measured, but an H200's: set_slice_us, message_us, both lateness_us, [tokens]. speed is left at 1: how fast "
      "your programs are here against an H200 is theirs to say.");
  return remarks;
}

std::string OthersOn(const Json& processes, unsigned gpu) {
  std::string others;
  for (const Json& process : Field(processes, "processes")) {
    if (IntegerField(process, "gpu") != gpu || !Field(process, "vgpu").is_null()) continue;
    const std::string pid = std::to_string(IntegerField(process, "pid"));
    const std::string name = TextField(process, "name");
    others += (others.empty() ? "" : ", ") + (name.empty() ? pid : name + " (" + pid + ")");
  }
  return others;
}

}  // namespace tessera::cli
