#include "server/config/config_reference.h"

#include <fmt/format.h>

#include <string_view>

#include "server/config/config_keys.h"

namespace tessera::server {
namespace {

std::string_view SectionOf(const ConfigKey& key) {
  return std::string_view(key.name).substr(0, std::string_view(key.name).rfind('.'));
}
std::string_view NameOf(const ConfigKey& key) { return std::string_view(key.name).substr(SectionOf(key).size() + 1); }

// Calls `begin` for each section, and `each` for each of its keys.
template <typename Begin, typename Each>
void ForEach(Begin begin, Each each) {
  std::string_view section;
  for (const ConfigKey& key : ConfigKeys()) {
    if (SectionOf(key) != section) begin(section = SectionOf(key));
    each(key);
  }
}

// Markdown as scdoc has it: links lose their target, what is code is bold, and nothing else is markup.
std::string ForManual(std::string_view markdown) {
  std::string text;
  bool code = false;
  for (std::size_t i = 0; i < markdown.size(); ++i) {
    const char c = markdown[i];
    if (c == '`') {
      code = !code;
      text += '*';
    } else if (c == '[' && !code) {
      continue;
    } else if (c == ']' && !code && i + 1 < markdown.size() && markdown[i + 1] == '(') {
      i = markdown.find(')', i);
    } else {
      if (std::string_view("\\*_#[]|<>~").find(c) != std::string_view::npos) text += '\\';
      text += c;
    }
  }
  return text;
}

std::string StandardOf(const ConfigKey& key) {
  return key.standard_in_words ? key.standard_in_words : fmt::format("`{}`", key.standard);
}

}  // namespace

std::string ConfigTable() {
  std::string text = "| key | default | values | meaning | read again |\n|---|---|---|---|---|\n";
  for (const ConfigKey& key : ConfigKeys())
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, StandardOf(key), key.values, key.meaning,
                        key.live ? "yes" : "");
  return text;
}

std::string ConfigExample() {
  std::string text =
      "# An example of /etc/tessera/tesserad.toml: every key with its default. tesserad.toml(5) says what they mean.\n";
  const char* comment = "";
  ForEach(
      [&](std::string_view section) {
        // The default quota is there without being named; a vGPU is not.
        const bool quota = section == "quota.NAME";
        comment = section == "vgpu.NAME" ? "#" : "# ";
        text += fmt::format("\n{}[{}]\n", section == "vgpu.NAME" ? "#" : "", quota ? "quota.default" : section);
      },
      [&](const ConfigKey& key) { text += fmt::format("{}{} = {}\n", comment, NameOf(key), key.standard); });
  return text;
}

std::string ConfigManual() {
  std::string text =
      "tesserad.toml(5)\n\n"
      "# NAME\n\n"
      "tesserad.toml - configuration of the daemon that shares GPUs\n\n"
      "# SYNOPSIS\n\n"
      "/etc/tessera/tesserad.toml\n\n"
      "# DESCRIPTION\n\n"
      "A TOML file. Every key has a default, so that an empty file is a good one, and none is one, too. A key that "
      "does "
      "not exist is refused. After *tessera reload* or SIGHUP the daemon reads it again: keys that say so take effect "
      "at "
      "once, while programs run, the others when the daemon starts. A file with an error changes nothing.\n\n"
      "Sizes are numbers with K, M, G or T (powers of 1024).\n";
  ForEach([&](std::string_view section) { text += fmt::format("\n# [{}]\n\n", section); },
          [&](const ConfigKey& key) {
            text += fmt::format("*{}* (default {})\n\t{}: {}.{}\n\n", ForManual(NameOf(key)),
                                ForManual(StandardOf(key)), ForManual(key.values), ForManual(key.meaning),
                                key.live ? " Takes effect when it is read again." : "");
          });
  text +=
      "\n# EXAMPLE\n\n```\n[sched]\nwindow_ms = 50\n\n[priority]\nmin_share = 5\n\n[client]\non_daemon_loss = "
      "\"block\"\n```\n\n"
      "# SEE ALSO\n\n*tesserad*(8), *tessera*(1)\n";
  return text;
}

}  // namespace tessera::server
