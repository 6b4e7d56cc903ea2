#include <string_view>

#include "server/config/config_keys.h"

namespace tessera::server {
namespace {

using Set = ConfigKey::Set;

// A duration in units of `unit`, within [least, most] of them.
Set Duration(Nanos Config::* field, Nanos unit, double least, double most, const char* expected) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto value = node.value<double>();
    if (!value || *value < least || *value > most) return expected;
    config.*field = static_cast<Nanos>(*value * static_cast<double>(unit));
    return nullptr;
  };
}

Set SchedDuration(Nanos sched::Config::* field, double least, double most, const char* expected) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto value = node.value<double>();
    if (!value || *value < least || *value > most) return expected;
    config.sched.*field = static_cast<Nanos>(*value * kMillisecond);
    return nullptr;
  };
}

const char* SetOnDaemonLoss(const toml::node& node, Config& config) {
  const auto value = node.value<std::string_view>();
  if (!value || (*value != "continue" && *value != "block")) return "\"continue\" or \"block\"";
  config.block_on_daemon_loss = *value == "block";
  return nullptr;
}

const char* SetControl(const toml::node& node, Config& config) {
  const auto value = node.value<std::string_view>();
  if (!value || (*value != "auto" && *value != "off")) return "\"auto\" or \"off\"";
  config.steer_channels = *value == "auto";
  return nullptr;
}

const char* SetMode(const toml::node& node, Config& config) {
  const auto value = node.value<std::string_view>();
  if (!value || (*value != "dynamic" && *value != "static")) return "\"dynamic\" or \"static\"";
  config.steering.fixed_slices = *value == "static";
  return nullptr;
}

const char* SetSlice(const toml::node& node, Config& config) {
  const auto value = node.value<double>();
  if (!value || *value < 1 || *value > 1000) return "a number from 1 to 1000";
  config.steering.mean_slice = static_cast<Nanos>(*value * kMillisecond);
  return nullptr;
}

const char* SetSpaceMode(const toml::node& node, Config& config) {
  const auto value = node.value<std::string_view>();
  if (!value || (*value != "auto" && *value != "at_once")) return "\"auto\" or \"at_once\"";
  config.try_spaces = *value == "auto";
  return nullptr;
}

const char* SetPriorityMode(const toml::node& node, Config& config) {
  const auto value = node.value<std::string_view>();
  if (!value || (*value != "strict" && *value != "soft")) return "\"strict\" or \"soft\"";
  config.soft_priority = *value == "soft";
  return nullptr;
}

const char* SetMinShare(const toml::node& node, Config& config) {
  const auto value = node.value<double>();
  if (!value || *value < 0 || *value > 50) return "a percentage from 0 to 50";
  config.steering.min_share_pct = *value;
  return nullptr;
}

}  // namespace

std::vector<ConfigKey> TimeKeys() {
  return {
      {.name = "sched.window_ms",
       .standard = "100",
       .values = "10 to 10000",
       .meaning = "time over which `compute.request` and `compute.limit` hold",
       .live = true,
       .set = SchedDuration(&sched::Config::window, 10, 10'000, "a number from 10 to 10000")},
      {.name = "sched.min_slice_ms",
       .standard = "2",
       .values = "0.1 to 1000, at most the window",
       .meaning = "shortest token worth its switch; the shortest run under a limit",
       .live = true,
       .set = SchedDuration(&sched::Config::min_slice, 0.1, 1'000, "a number from 0.1 to 1000")},
      {.name = "sched.in_flight_ms",
       .standard = "2",
       .values = "0.1 to 1000",
       .meaning =
           "GPU work that a program may have queued while others wait: how long they wait for it to drain. Without "
           "channel control only",
       .live = true,
       .set = Duration(&Config::in_flight, kMillisecond, 0.1, 1'000, "a number from 0.1 to 1000")},
      {.name = "sched.space_mode",
       .standard = "\"auto\"",
       .values = "`\"auto\"`, `\"at_once\"`",
       .meaning = "in a space in which a vGPU has a goal, vGPUs take turns where a trial shows that this is better "
                  "([spaces](../spaces.md#at-once-or-in-turns)), or never",
       .live = true,
       .set = SetSpaceMode},
      {.name = "channels.control",
       .standard = "\"auto\"",
       .values = "`\"auto\"`, `\"off\"`",
       .meaning = "divide time by the GPU's channels where the self-test passes, or always by the gate",
       .set = SetControl},
      {.name = "channels.mode",
       .standard = "\"dynamic\"",
       .values = "`\"dynamic\"`, `\"static\"`",
       .meaning =
           "slices by request and weight and classes by freezing, or a fixed slice of 524,288 µs >> priority for "
           "each vGPU, where only limits stop a vGPU. Static is there for comparison",
       .live = true,
       .set = SetMode},
      {.name = "channels.slice_ms",
       .standard = "20",
       .values = "1 to 1000",
       .meaning = "mean slice of competing vGPUs. Shorter: smoother. Longer: fewer switches",
       .live = true,
       .set = SetSlice},
      {.name = "priority.mode",
       .standard = "\"strict\"",
       .values = "`\"strict\"`, `\"soft\"`",
       .meaning = "lower classes stand still while a higher one has work, or run by short slices in its gaps. "
                  "Soft is for higher classes with many short gaps",
       .live = true,
       .set = SetPriorityMode},
      {.name = "priority.patience_us",
       .standard = "100",
       .values = "50 to 1000000",
       .meaning =
           "with `priority.mode = \"soft\"`: how long all lower classes together may hold the GPU before a higher one "
           "gets it back, besides a switch of 100 to 180 µs for each of them",
       .live = true,
       .set = Duration(&Config::patience, kMicrosecond, 50, 1'000'000, "a number from 50 to 1000000")},
      {.name = "priority.min_share",
       .standard = "0",
       .values = "0 to 50 (percent)",
       .meaning = "time that lower classes get together while a higher one never stops",
       .live = true,
       .set = SetMinShare},
      {.name = "priority.spin_ms",
       .standard = "50",
       .values = "0 to 10000",
       .meaning =
           "while a higher class is idle and a lower one runs, the daemon polls for this long after the last event "
           "instead of sleeping. Costs one core meanwhile; with 0, a freeze comes later by a wake-up",
       .live = true,
       .set = Duration(&Config::priority_spin, kMillisecond, 0, 10'000, "a number from 0 to 10000")},
      {.name = "client.grace_s",
       .standard = "30",
       .values = "0 to 86400",
       .meaning = "how long programs go on under their last orders after the daemon has ended",
       .live = true,
       .set = Duration(&Config::client_grace, kSecond, 0, 86'400, "a number from 0 to 86400")},
      {.name = "client.on_daemon_loss",
       .standard = "\"continue\"",
       .values = "`\"continue\"`, `\"block\"`",
       .meaning = "after that: go on without limits of time, or wait for a daemon",
       .live = true,
       .set = SetOnDaemonLoss},
  };
}

}  // namespace tessera::server
