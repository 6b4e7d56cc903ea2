#include "server/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "base/edit_distance.h"
#include "base/size.h"

namespace tessera::server {
namespace {

// What a value must be, as the message says it; null if it is that.
using Set = std::function<const char*(const toml::node&, Config&)>;

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

struct Key {
  const char* name;
  Set set;
};

const std::vector<Key>& Keys() {
  static const std::vector<Key> keys = {
      {"sched.window_ms", SchedDuration(&sched::Config::window, 10, 10'000, "a number from 10 to 10000")},
      {"sched.min_slice_ms", SchedDuration(&sched::Config::min_slice, 0.1, 1'000, "a number from 0.1 to 1000")},
      {"sched.in_flight_ms", Duration(&Config::in_flight, kMillisecond, 0.1, 1'000, "a number from 0.1 to 1000")},
      {"channels.control", SetControl},
      {"channels.mode", SetMode},
      {"channels.slice_ms", SetSlice},
      {"priority.min_share", SetMinShare},
      {"priority.spin_ms", Duration(&Config::priority_spin, kMillisecond, 0, 10'000, "a number from 0 to 10000")},
      {"client.grace_s", Duration(&Config::client_grace, kSecond, 0, 86'400, "a number from 0 to 86400")},
      {"client.on_daemon_loss", SetOnDaemonLoss},
      {"memory.reserve", SetReserve},
      {"swap.size", RamSize(&Config::swap_size)},
      {"swap.file", SetSwapFile},
      {"swap.file_size", SetSwapFileSize},
      {"swap.floor", RamSize(&Config::swap_floor)},
      {"turn.min_ms", TurnLength(&sched::ResidencyConfig::turn_min)},
      {"turn.max_ms", TurnLength(&sched::ResidencyConfig::turn_max)},
      {"api.group", SetApiGroup},
      {"api.listen", SetApiListen},
      {"api.token_file", SetApiTokenFile},
      {"files.enabled", SetFiles},
  };
  return keys;
}

// How far a wrong name is from a key, with or without its section.
std::size_t Distance(std::string_view name, std::string_view key) {
  return std::min(EditDistance(name, key), EditDistance(name, key.substr(key.find('.') + 1)));
}

Result<void> Apply(const toml::table& table, const std::string& prefix, const std::string& source, Config& config) {
  for (const auto& [part, node] : table) {
    const std::string name = prefix + std::string(part.str());
    const unsigned line = part.source().begin.line;
    if (const auto key = std::ranges::find(Keys(), name, &Key::name); key != Keys().end()) {
      if (const char* expected = key->set(node, config)) {
        return Fail(EINVAL, fmt::format("{}:{}: {} must be {}", source, line, name, expected));
      }
    } else if (node.is_table()) {
      if (auto applied = Apply(*node.as_table(), name + ".", source, config); !applied) return applied;
    } else {
      const auto nearest = std::ranges::min_element(Keys(), {}, [&](const Key& k) { return Distance(name, k.name); });
      return Fail(EINVAL, fmt::format("{}:{}: unknown key {}", source, line, name),
                  fmt::format("did you mean {}?", nearest->name));
    }
  }
  return {};
}

}  // namespace

Result<Config> LoadConfig(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return FailErrno("cannot read the configuration " + path);
  return ParseConfig(text.str(), path);
}

Result<Config> ParseConfig(std::string_view text, const std::string& source) {
  Config config;
  try {
    const toml::table table = toml::parse(text, source);
    if (auto applied = Apply(table, "", source, config); !applied) return std::unexpected(applied.error());
  } catch (const toml::parse_error& error) {
    return Fail(EINVAL, fmt::format("{}:{}: {}", source, error.source().begin.line, error.description()));
  }
  if (config.sched.min_slice > config.sched.window) {
    return Fail(EINVAL, source + ": sched.min_slice_ms is longer than sched.window_ms");
  }
  if (config.residency.turn_min > config.residency.turn_max)
    return Fail(EINVAL, source + ": turn.min_ms is longer than turn.max_ms");
  if (!config.swap_file.empty() && config.swap_file_size.empty())
    return Fail(EINVAL, source + ": swap.file has no size", "set swap.file_size");
  if (!config.api_listen.empty() && config.api_token_file.empty())
    return Fail(EINVAL, source + ": api.listen needs a token", "set api.token_file");
  config.steering.shares = config.sched;
  return config;
}

}  // namespace tessera::server
