#include "server/config/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
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

const char* SetSwapPrepare(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (*text != "auto" && !ParseSize(*text, kGiB)))
    return "\"auto\", a size (\"32G\"), a percentage of the free RAM (\"25%\") or \"0\"";
  config.swap_prepare = *text;
  return nullptr;
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

const char* SetOnHost(const toml::node& node, Config& config) {
  const auto value = node.value<double>();
  if (!value || *value < 0 || *value > 86'400) return "a number from 0 to 86400";
  config.residency.on_host = static_cast<Nanos>(*value * kSecond);
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

Set Switch(bool Config::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto value = node.value_exact<bool>();
    if (!value) return "true or false";
    config.*field = *value;
    return nullptr;
  };
}

bool IsBound(const std::string& text) { return text == "max" || ParseSize(text, kGiB); }

// A text, or a number as its text.
std::optional<std::string> TextIn(const toml::node& node) {
  if (auto text = node.value_exact<std::string>()) return text;
  if (auto whole = node.value_exact<std::int64_t>()) return std::to_string(*whole);
  if (auto number = node.value_exact<double>()) return fmt::format("{:g}", *number);
  return {};
}

Set QuotaSize(std::optional<std::string> QuotaBounds::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto text = node.value<std::string>();
    if (!text || !IsBound(*text)) return "a size (\"20G\"), a percentage of all (\"50%\") or \"max\"";
    config.quotas.back().bounds.*field = *text;
    return nullptr;
  };
}

Set QuotaNumber(std::optional<std::uint64_t> QuotaBounds::* field, std::int64_t most, const char* expected) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto number = node.value_exact<std::int64_t>();
    const bool none = node.value_exact<std::string>() == "max";
    if (!none && (!number || *number < 0 || *number > most)) return expected;
    config.quotas.back().bounds.*field = none ? QuotaBounds::kNone : static_cast<std::uint64_t>(*number);
    return nullptr;
  };
}

const char* SetQuotaCompute(const toml::node& node, Config& config) {
  const auto value = node.value<double>();
  if (!value || *value < 0 || *value > 100) return "a percentage from 0 to 100";
  config.quotas.back().bounds.compute = value;
  return nullptr;
}

// What the text may be depends on the GPU, and is checked when the vGPU is made.
Set VGpuField(std::optional<std::string> DeclaredVGpu::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    auto text = TextIn(node);
    if (!text) return "a number or a text";
    config.vgpus.back().*field = std::move(text);
    return nullptr;
  };
}

const char* SetVGpuUser(const toml::node& node, Config& config) {
  auto text = TextIn(node);
  if (!text || text->empty()) return "the name or number of a user";
  config.vgpus.back().user = std::move(*text);
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
       .meaning = "host memory for data that does not fit on the GPUs, each GPU an equal part. Pinned; taken ahead of "
                  "need (`swap.prepare`)",
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
      {.name = "swap.prepare",
       .standard = "\"auto\"",
       .values = "`\"auto\"`, size, or percentage of the free RAM; `\"0\"` for nothing",
       .meaning =
           "part of `swap.size` that is made ahead, in the background, so that the first moves need not wait for it. "
           "Auto: what programs have that could be moved. Given back when the machine needs memory, and a minute "
           "after it is not needed any more ([memory](../memory.md#host-memory))",
       .set = SetSwapPrepare},
      {.name = "swap.floor",
       .standard = "\"5%\"",
       .standard_in_words = "5 % of the RAM, at least 1 GiB",
       .values = "size, or percentage of the free RAM",
       .meaning = "RAM that stays free whatever `swap.size` says; also of the control group that the daemon is in",
       .set = RamSize(&Config::swap_floor)},
      {.name = "swap.on_host_s",
       .standard = "60",
       .values = "0 to 86400; 0 for never",
       .meaning = "the event `memory.on_host` tells of a program when it has worked for so long while much of what it "
                  "uses lay in host memory ([memory](../memory.md#larger-than-its-limit))",
       .live = true,
       .set = SetOnHost},
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
       .meaning = "group of operators, who may do everything that root may, by API, CLI and files. Without such a "
                  "group, and for "
                  "daemons of other users, the daemon's own user is the only one besides root",
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
      {.name = "access.users",
       .standard = "true",
       .values = "`true`, `false`",
       .meaning =
           "every user of the node may use API, CLI and files for vGPUs and processes of their own, within a quota "
           "([security](../security-model.md#who-may-do-what)). For root's daemon; under systemd `tesserad-api.socket` "
           "must let them in as well",
       .set = Switch(&Config::access_users)},
      {.name = "access.totals",
       .standard = "true",
       .values = "`true`, `false`",
       .meaning = "these users see the GPUs' totals: capacity, used, promised, busy",
       .set = Switch(&Config::access_totals)},
      {.name = "files.enabled",
       .standard = "true",
       .values = "`true`, `false`",
       .meaning =
           "the tree of files in the run directory's `fs` ([files](../files.md)), where FUSE can be used. Daemons that "
           "`tessera run` started have none",
       .set = Switch(&Config::files)},
      {.name = "quota.NAME.memory",
       .standard = "\"50%\"",
       .values = "size, percentage of the memory of all GPUs together, or `\"max\"`",
       .meaning = "GPU memory that all vGPUs of a user may be promised together. For the names of quotas see "
                  "[below](#quotas)",
       .live = true,
       .set = QuotaSize(&QuotaBounds::memory)},
      {.name = "quota.NAME.swap",
       .standard = "\"max\"",
       .values = "size, percentage of the host memory that all GPUs have (`swap.size`), or `\"max\"`",
       .meaning = "sum of `memory.swap.max` over a user's vGPUs. Where it is bounded, a vGPU that is made without "
                  "`memory.swap.max` gets an equal part for each of `quota.NAME.vgpus`, at most what is left",
       .live = true,
       .set = QuotaSize(&QuotaBounds::swap)},
      {.name = "quota.NAME.compute",
       .standard = "50",
       .values = "0 to 100 (percent of the time of all GPUs together)",
       .meaning = "sum of `compute.request` over a user's vGPUs",
       .live = true,
       .set = SetQuotaCompute},
      {.name = "quota.NAME.vgpus",
       .standard = "16",
       .values = "0 to 100000, or `\"max\"`",
       .meaning = "vGPUs of a user",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::vgpus, 100'000, "a number from 0 to 100000, or \"max\"")},
      {.name = "quota.NAME.processes",
       .standard = "64",
       .values = "0 to 100000, or `\"max\"`",
       .meaning = "processes of a user in vGPUs, each GPU that one uses counted; whoever owns the vGPU",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::processes, 100'000, "a number from 0 to 100000, or \"max\"")},
      {.name = "quota.NAME.sessions",
       .standard = "512",
       .values = "0 to 100000, or `\"max\"`",
       .meaning = "connections of a user's programs to the daemon. Each takes three of its descriptors",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::sessions, 100'000, "a number from 0 to 100000, or \"max\"")},
      {.name = "quota.NAME.priority",
       .standard = "8",
       .values = "0 to 15",
       .meaning = "the lowest number of `compute.priority` that a user may give: lower ones go before it",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::priority, 15, "a number from 0 to 15")},
      {.name = "quota.NAME.weight",
       .standard = "100",
       .values = "1 to 10000",
       .meaning = "highest `compute.weight` that a user may give",
       .live = true,
       .set = QuotaNumber(&QuotaBounds::weight, 10'000, "a number from 1 to 10000")},
      {.name = "vgpu.NAME.user",
       .standard = "\"root\"",
       .values = "name or number of a user",
       .meaning = "owner of this vGPU; those of root are for everybody. For these sections see "
                  "[below](#vgpus-that-the-configuration-declares)",
       .live = true,
       .set = SetVGpuUser},
      {.name = "vgpu.NAME.gpu",
       .standard = "\"auto\"",
       .values = "index, UUID or `\"auto\"`",
       .meaning = "its GPU, when it is made",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::gpu)},
      {.name = "vgpu.NAME.memory_request",
       .standard = "\"0\"",
       .values = "size, or percentage of the GPU",
       .meaning = "as in the API's requests ([protocol](../protocol.md)), and so the next ones",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_request)},
      {.name = "vgpu.NAME.memory_limit",
       .standard = "\"max\"",
       .values = "likewise, or `\"max\"`",
       .meaning = "memory that may lie on the GPU",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_limit)},
      {.name = "vgpu.NAME.memory_max",
       .standard = "\"max\"",
       .values = "likewise",
       .meaning = "memory that may be allocated",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_max)},
      {.name = "vgpu.NAME.memory_swap_max",
       .standard = "\"max\"",
       .values = "likewise, or `\"0\"`",
       .meaning = "of that, what may lie in host memory",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::memory_swap_max)},
      {.name = "vgpu.NAME.compute_request",
       .standard = "0",
       .values = "0 to 100 (percent)",
       .meaning = "time that it gets whenever it wants it",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_request)},
      {.name = "vgpu.NAME.compute_limit",
       .standard = "100",
       .values = "0 to 100 (percent)",
       .meaning = "time that it never exceeds",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_limit)},
      {.name = "vgpu.NAME.compute_weight",
       .standard = "100",
       .values = "1 to 10000",
       .meaning = "its part of the time that is promised to none",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_weight)},
      {.name = "vgpu.NAME.compute_priority",
       .standard = "8",
       .values = "0 (first) to 15",
       .meaning = "its class",
       .live = true,
       .set = VGpuField(&DeclaredVGpu::compute_priority)},
  };
  return keys;
}

}  // namespace tessera::server
