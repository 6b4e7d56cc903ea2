#include "server/config/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/edit_distance.h"
#include "server/config/config_keys.h"

namespace tessera::server {
namespace {

// How far a wrong name is from a key, with or without its section.
std::size_t Distance(std::string_view name, std::string_view key) {
  return std::min(EditDistance(name, key), EditDistance(name, key.substr(key.find('.') + 1)));
}

// The name without its last part: the sections of a key.
std::string_view SectionOf(std::string_view key) { return key.substr(0, key.rfind('.')); }

bool IsSection(const std::string& name) {
  return std::ranges::any_of(ConfigKeys(), [&](const ConfigKey& key) { return SectionOf(key.name) == name; });
}

// The value as it would be written.
std::string TextOf(const toml::node& node) {
  std::ostringstream text;
  text << toml::toml_formatter(node, toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings);
  return text.str();
}

Result<void> Apply(const toml::table& table, const std::string& prefix, const std::string& source, Config& config) {
  for (const auto& [part, node] : table) {
    const std::string name = prefix + std::string(part.str());
    const unsigned line = part.source().begin.line;
    if (const auto key = std::ranges::find(ConfigKeys(), name, &ConfigKey::name); key != ConfigKeys().end()) {
      if (const char* expected = key->set(node, config)) {
        return Fail(EINVAL, fmt::format("{}:{}: {} must be {}", source, line, name, expected));
      }
      config.given[name] = TextOf(node);
    } else if (node.is_table() && (IsSection(name) || !node.as_table()->empty())) {
      if (auto applied = Apply(*node.as_table(), name + ".", source, config); !applied) return applied;
    } else {
      const bool section = node.is_table();
      const auto distance = [&](const ConfigKey& each) {
        return section ? EditDistance(name, SectionOf(each.name)) : Distance(name, each.name);
      };
      const char* nearest = std::ranges::min_element(ConfigKeys(), {}, distance)->name;
      return Fail(EINVAL, fmt::format("{}:{}: unknown {} {}", source, line, section ? "section" : "key", name),
                  fmt::format("did you mean {}?", section ? SectionOf(nearest) : nearest));
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
    return Fail(EINVAL, source + ": swap.file needs a size", "set swap.file_size");
  if (!config.api_listen.empty() && config.api_token_file.empty())
    return Fail(EINVAL, source + ": api.listen needs a token", "set api.token_file");
  config.steering.shares = config.sched;
  return config;
}

std::vector<ConfigChange> Difference(const Config& before, const Config& after) {
  std::vector<ConfigChange> changes;
  for (const ConfigKey& key : ConfigKeys()) {
    const auto value = [&key](const Config& config) {
      const auto given = config.given.find(key.name);
      return given == config.given.end() ? std::string(key.standard) : given->second;
    };
    if (value(before) != value(after)) changes.push_back({key.name, value(before), value(after), key.live});
  }
  return changes;
}

Result<Config> MergeLive(const Config& running, const Config& read) {
  std::string text;
  for (const ConfigKey& key : ConfigKeys()) {
    const auto& from = key.live ? read.given : running.given;
    if (const auto given = from.find(key.name); given != from.end())
      text += given->first + " = " + given->second + "\n";
  }
  return ParseConfig(text, "what of the configuration can change now");
}

}  // namespace tessera::server
