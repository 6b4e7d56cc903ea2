#include "server/config/config_keys.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/size.h"

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

const char* SetMinShare(const toml::node& node, Config& config) {
  const auto value = node.value<double>();
  if (!value || *value < 0 || *value > 50) return "a percentage from 0 to 50";
  config.steering.min_share_pct = *value;
  return nullptr;
}

const char* SetReserve(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || !ParseSize(*text, kGiB)) return "a size (\"512M\") or a percentage of the GPU (\"2%\")";
  config.memory_reserve = *text;
  return nullptr;
}

// Percentages are of the RAM that is free when the daemon starts.
Set RamSize(std::string Config::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto text = node.value<std::string>();
    if (!text || !ParseSize(*text, kGiB)) return "a size (\"64G\"), a percentage of the free RAM (\"50%\") or \"0\"";
    config.*field = *text;
    return nullptr;
  };
}

const char* SetSwapFile(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (!text->empty() && (!text->starts_with('/') || text->ends_with('/'))))
    return "the path of a file from /, or \"\" for none";
  config.swap_file = *text;
  return nullptr;
}

const char* SetSwapFileSize(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || !ParseSize(*text)) return "a size (\"200G\")";
  config.swap_file_size = *text;
  return nullptr;
}

Set TurnLength(Nanos sched::ResidencyConfig::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto value = node.value<double>();
    if (!value || *value < 10 || *value > 600'000) return "a number from 10 to 600000";
    config.residency.*field = static_cast<Nanos>(*value * kMillisecond);
    return nullptr;
  };
}

const char* SetFiles(const toml::node& node, Config& config) {
  const auto value = node.value_exact<bool>();
  if (!value) return "true or false";
  config.files = *value;
  return nullptr;
}

const char* SetApiGroup(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text) return "the name of a group, or \"\" for none";
  config.api_group = *text;
  return nullptr;
}

const char* SetApiListen(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (!text->empty() && text->rfind(':') == std::string::npos))
    return "an address with a port (\"127.0.0.1:9477\", \"[::1]:9477\"), or \"\" for none";
  config.api_listen = *text;
  return nullptr;
}

const char* SetApiTokenFile(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (!text->empty() && !text->starts_with('/'))) return "the path of a file from /";
  config.api_token_file = *text;
  return nullptr;
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = {
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
      {.name = "memory.reserve",
       .standard = "\"2%\"",
       .standard_in_words = "`\"2%\"`, at least 256 MiB; 0 on soft GPUs",
       .values = "size or percentage",
       .meaning = "GPU memory that no vGPU gets",
       .set = SetReserve},
      {.name = "swap.size",
       .standard = "\"50%\"",
       .standard_in_words = "half of the RAM that is free at the daemon's start",
       .values = "size, or percentage of that RAM; `\"0\"` for no swap",
       .meaning = "host memory for data that does not fit on the GPUs, each GPU an equal part. Taken as it is needed, "
                  "pinned, and kept until the daemon ends",
       .set = RamSize(&Config::swap_size)},
      {.name = "swap.file",
       .standard = "\"\"",
       .standard_in_words = "`\"\"`: none",
       .values = "path of a file, from `/`",
       .meaning =
           "file for data that has no place in the pool ([memory](../memory.md#a-file-for-more)). "
           "`/var/lib/tessera/swap`, say, which the service may write. Made at start in that folder, mode 0600 and "
           "without a name; with several GPUs `.0`, `.1` and so on are appended",
       .set = SetSwapFile},
      {.name = "swap.file_size",
       .standard = "\"\"",
       .standard_in_words = "none; needed with `swap.file`",
       .values = "size",
       .meaning =
           "of all files together, each GPU an equal part, reserved on the disk at start: the daemon does not start "
           "if it does not fit",
       .set = SetSwapFileSize},
      {.name = "swap.floor",
       .standard = "\"5%\"",
       .standard_in_words = "5 % of the RAM, at least 1 GiB",
       .values = "size, or percentage of the free RAM",
       .meaning = "RAM that stays free whatever `swap.size` says; also of the control group that the daemon is in",
       .set = RamSize(&Config::swap_floor)},
      {.name = "turn.min_ms",
       .standard = "250",
       .values = "10 to 600000",
       .meaning =
           "shortest turn of programs whose memory does not fit together ([memory](../memory.md#who-is-resident))",
       .live = true,
       .set = TurnLength(&sched::ResidencyConfig::turn_min)},
      {.name = "turn.max_ms",
       .standard = "30000",
       .values = "10 to 600000, at least `turn.min_ms`",
       .meaning = "longest turn: how long a program may wait for each of the others",
       .live = true,
       .set = TurnLength(&sched::ResidencyConfig::turn_max)},
      {.name = "api.group",
       .standard = "\"tessera\"",
       .values = "name of a group",
       .meaning =
           "group that may use `api.sock` besides root. Without such a group, and for daemons of other users, only the "
           "daemon's own user; under systemd `tesserad-api.socket` decides",
       .set = SetApiGroup},
      {.name = "api.listen",
       .standard = "\"\"",
       .standard_in_words = "`\"\"`: none",
       .values = "address and port, such as `\"127.0.0.1:9477\"` or `\"[::1]:9477\"`",
       .meaning = "address at which the API is served by TCP as well, for [Prometheus](../prometheus.md) and tools of "
                  "other machines. "
                  "HTTP without encryption: for the loopback or behind a proxy that has it",
       .set = SetApiListen},
      {.name = "api.token_file",
       .standard = "\"\"",
       .standard_in_words = "none; needed with `api.listen`",
       .values = "path of a file, from `/`",
       .meaning =
           "the token that requests by TCP must show: one line of 16 to 256 visible characters, in a file that its "
           "owner alone may read. Its holder may do everything that the API can. `tessera reload` reads the token "
           "again",
       .set = SetApiTokenFile},
      {.name = "files.enabled",
       .standard = "true",
       .values = "`true`, `false`",
       .meaning =
           "the tree of files in the run directory's `fs` ([files](../files.md)), where FUSE can be used. Daemons that "
           "`tessera run` started have none",
       .set = SetFiles},
  };
  return keys;
}

}  // namespace tessera::server
