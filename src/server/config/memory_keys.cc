#include <string>

#include "base/duration.h"
#include "base/size.h"
#include "server/config/config_keys.h"

namespace tessera::server {
namespace {

using Set = ConfigKey::Set;

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

const char* SetSuspendDir(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (!text->empty() && !text->starts_with('/'))) return "the path of a folder from /, or \"\"";
  config.suspend_dir = *text;
  return nullptr;
}

const char* SetSuspendIdle(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  const auto idle = text ? ParseDuration(*text) : Result<Nanos>(Fail(EINVAL, ""));
  if (!idle || (*idle != 0 && *idle < 100 * kMillisecond))
    return "a duration of 100ms or more, a year at most (\"30min\"), or \"0\"";
  config.suspend_idle = *idle;
  return nullptr;
}

const char* SetSuspendIdleTo(const toml::node& node, Config& config) {
  const auto text = node.value<std::string>();
  if (!text || (*text != "memory" && *text != "file")) return "\"memory\" or \"file\"";
  config.suspend_idle_to_file = *text == "file";
  return nullptr;
}

const char* SetOnHost(const toml::node& node, Config& config) {
  const auto value = node.value<double>();
  if (!value || *value < 0 || *value > 86'400) return "a number from 0 to 86400";
  config.residency.on_host = static_cast<Nanos>(*value * kSecond);
  return nullptr;
}

Set OnOff(bool Config::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto value = node.value_exact<bool>();
    if (!value) return "true or false";
    config.*field = *value;
    return nullptr;
  };
}

Set TurnLength(Nanos sched::ResidencyConfig::* field) {
  return [=](const toml::node& node, Config& config) -> const char* {
    const auto value = node.value<double>();
    if (!value || *value < 10 || *value > 600'000) return "a number from 10 to 600000";
    config.residency.*field = static_cast<Nanos>(*value * kMillisecond);
    return nullptr;
  };
}

}  // namespace

std::vector<ConfigKey> MemoryKeys() {
  return {
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
      {.name = "suspend.dir",
       .standard = "\"\"",
       .standard_in_words = "`\"\"`: `suspended` in the daemon's state directory (`/var/lib/tessera`)",
       .values = "path of a folder, from `/`",
       .meaning = "folder for the files of programs that are suspended to a file "
                  "([format](../suspended-file.md)); made if it is missing, mode 0700",
       .set = SetSuspendDir},
      {.name = "suspend.idle",
       .standard = "\"0\"",
       .standard_in_words = "`\"0\"`: never",
       .values = "duration from `\"100ms\"` to a year (`\"30min\"`), or `\"0\"`",
       .meaning = "programs that are idle for so long are suspended; their first call brings them back "
                  "([by itself](../migration.md#by-itself))",
       .live = true,
       .set = SetSuspendIdle},
      {.name = "suspend.idle_to",
       .standard = "\"memory\"",
       .values = "`\"memory\"`, `\"file\"`",
       .meaning = "where such programs go; `\"file\"` needs swap",
       .live = true,
       .set = SetSuspendIdleTo},
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
      {.name = "drain.on_xid",
       .standard = "false",
       .values = "true or false",
       .meaning = "whether an error of a GPU (a critical Xid or an ECC error, but not one that a program can cause) "
                  "drains it as `tessera gpu drain` does",
       .live = true,
       .set = OnOff(&Config::drain_on_xid)},
      {.name = "rebalance.auto",
       .standard = "false",
       .values = "true or false",
       .meaning =
           "whether vGPUs move to other GPUs, as by `tessera rebalance`, where a new one's promises would else be "
           "refused. Its maker waits for that, 20 s at most",
       .live = true,
       .set = OnOff(&Config::rebalance_auto)},
      {.name = "rebalance.load",
       .standard = "false",
       .values = "true or false",
       .meaning = "whether vGPUs move from a GPU that is asked for more time than it has to one that has time to spare "
                  "([by load](../migration.md#by-load))",
       .live = true,
       .set = OnOff(&Config::rebalance_load)},
  };
}

}  // namespace tessera::server
