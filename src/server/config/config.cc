#include "server/config/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/edit_distance.h"
#include "server/config/account_names.h"
#include "server/config/config_keys.h"
#include "server/record/log.h"

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

// The value as it would be written, in one line.
std::string TextOf(const toml::node& node) {
  if (const toml::table* table = node.as_table()) {
    std::string text;
    for (const auto& [key, value] : *table)
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key.str(), TextOf(value));
    return "{" + text + "}";
  }
  std::ostringstream text;
  text << toml::toml_formatter(node, toml::toml_formatter::default_flags & ~toml::format_flags::allow_literal_strings);
  return text.str();
}

// The sections [quota.NAME] and [vgpu.NAME], whose keys stand under "quota.NAME" in the table of keys. Dotted names are
// ambiguous there, so these are no case of Apply.
Result<void> ApplyNamed(const std::string& kind, const std::string& name, const toml::table& section,
                        const std::string& source, Config& config) {
  const unsigned line = section.source().begin.line;
  const std::string title = kind + "." + name;
  const bool is_vgpu = kind == "vgpu";
  if (name.empty() || name == "NAME")
    return Fail(EINVAL, fmt::format("{}:{}: {} needs a name", source, line, kind),
                fmt::format("write [{}.NAME]", kind));
  if (is_vgpu)
    config.vgpus.push_back({.name = name, .where = fmt::format("{}:{}", source, line)});
  else
    config.quotas.push_back({.name = name, .line = line});
  if (is_vgpu) config.given[title] = "{}";
  for (const auto& [part, node] : section) {
    const std::string field(part.str());
    const std::string unnamed = fmt::format("{}.NAME.{}", kind, field);
    const auto key = std::ranges::find(ConfigKeys(), unnamed, &ConfigKey::name);
    const unsigned at = part.source().begin.line;
    if (key == ConfigKeys().end()) {
      const auto distance = [&](const ConfigKey& each) { return EditDistance(unnamed, each.name); };
      const std::string nearest = std::ranges::min_element(ConfigKeys(), {}, distance)->name;
      return Fail(EINVAL, fmt::format("{}:{}: unknown key {}.{}", source, at, title, field),
                  fmt::format("did you mean {}?", nearest.substr(nearest.rfind('.') + 1)));
    }
    if (const char* expected = key->set(node, config))
      return Fail(EINVAL, fmt::format("{}:{}: {}.{} must be {}", source, at, title, field, expected));
    config.given[fmt::format("{}.{}", title, field)] = TextOf(node);
  }
  return {};
}

bool HasNamedSections(const std::string& kind) { return kind == "quota" || kind == "vgpu"; }

Result<void> Apply(const toml::table& table, const std::string& prefix, const std::string& source, Config& config) {
  for (const auto& [part, node] : table) {
    const std::string name = prefix + std::string(part.str());
    const unsigned line = part.source().begin.line;
    if (const auto key = std::ranges::find(ConfigKeys(), name, &ConfigKey::name); key != ConfigKeys().end()) {
      if (const char* expected = key->set(node, config)) {
        return Fail(EINVAL, fmt::format("{}:{}: {} must be {}", source, line, name, expected));
      }
      config.given[name] = TextOf(node);
    } else if (node.is_table() && prefix.empty() && HasNamedSections(name)) {
      for (const auto& [section, its] : *node.as_table()) {
        if (!its.is_table())
          return Fail(
              EINVAL,
              fmt::format("{}:{}: {}.{} must be a section", source, section.source().begin.line, name, section.str()),
              fmt::format("write [{}.NAME]", name));
        if (auto applied = ApplyNamed(name, std::string(section.str()), *its.as_table(), source, config); !applied)
          return applied;
      }
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

// A key of a section with a name, as `given` has it, without that name; empty for other keys.
std::string Unnamed(const std::string& given) {
  const std::string kind = given.substr(0, given.find('.'));
  return HasNamedSections(kind) ? kind + ".NAME" + given.substr(given.rfind('.')) : "";
}

// Puts in the numbers of users and groups.
void Identify(Config& config) {
  for (Quota& quota : config.quotas) {
    if (quota.name.starts_with('@'))
      quota.group = GroupNumber(quota.name.substr(1));
    else if (quota.name != "default")
      quota.user = UserNumber(quota.name);
  }
  for (DeclaredVGpu& vgpu : config.vgpus) vgpu.uid = UserNumber(vgpu.user);
  // TOML's tables forget the order; of groups the first one counts.
  std::ranges::sort(config.quotas, {}, &Quota::line);
}

}  // namespace

Result<Config> LoadConfig(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return FailErrno("cannot read the configuration " + path);
  auto config = ParseConfig(text.str(), path);
  if (!config) return config;
  for (const Quota& quota : config->quotas) {
    if (quota.name != "default" && !quota.user && !quota.group)
      log::Warn("{}:{}: quota.{} is nobody's: there is no such {}", path, quota.line, quota.name,
                quota.name.starts_with('@') ? "group" : "user");
  }
  return config;
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
  config.steering.patience = config.soft_priority ? config.patience : 0;
  Identify(config);
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
  // Of named sections there is what one of the two says.
  std::map<std::string, std::string> named = before.given;
  named.insert(after.given.begin(), after.given.end());
  for (const auto& [name, text] : named) {
    if (Unnamed(name).empty()) continue;
    const auto key = std::ranges::find(ConfigKeys(), Unnamed(name), &ConfigKey::name);
    const bool standard = name.starts_with("quota.default.") && key != ConfigKeys().end();
    const auto value = [&](const Config& config) {
      const auto given = config.given.find(name);
      if (given != config.given.end()) return given->second;
      return std::string(standard ? key->standard : "none");
    };
    if (value(before) != value(after)) changes.push_back({name, value(before), value(after), true});
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
  auto merged = ParseConfig(text, "what of the configuration can change now");
  if (!merged) return merged;
  merged->quotas = read.quotas;
  merged->vgpus = read.vgpus;
  for (const auto& [name, value] : read.given) {
    if (!Unnamed(name).empty()) merged->given[name] = value;
  }
  return merged;
}

}  // namespace tessera::server
