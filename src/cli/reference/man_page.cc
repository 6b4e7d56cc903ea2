// tessera(1) and docs/reference/cli.md from the description of the commands.
#include <algorithm>
#include <cctype>
#include <sstream>

#include "cli/reference/reference.h"

namespace tessera::cli {
namespace {

// Text with scdoc's markup escaped.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\*_#`[]|<>~-.").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// The sections of a footer: "Title:" becomes a heading or a line, and the lines under it a literal block.
std::string Sections(const std::string& footer, bool headings) {
  std::string text;
  bool open = false;
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) {
      text += line.substr(2) + "\n";
    } else if (!line.empty()) {
      if (open) text += "```\n\n";
      std::string title = line;
      if (headings) {
        title.pop_back();
        std::transform(title.begin(), title.end(), title.begin(), ::toupper);
        title.insert(0, "# ");
      }
      text += title + "\n\n```\n";
      open = true;
    }
  }
  return open ? text + "```\n\n" : text;
}

bool Has(const CLI::App& app, const CLI::Option& option) {
  return app.get_option_no_throw("--" + option.get_lnames().front()) != nullptr;
}

// The options of a command, except those of `described`.
std::string OptionEntries(const CLI::App& app, const CLI::App* described) {
  std::string text;
  for (const CLI::Option* option : VisibleOptions(app)) {
    if (described && Has(*described, *option)) continue;
    std::string description = Escaped(option->get_description());
    std::replace(description.begin(), description.end(), '\n', ' ');
    text += "*" + Escaped(OptionTitle(*option)) + "*\n\t" + description + "\n\n";
  }
  return text;
}

// The summary as a sentence, the rest as a paragraph of its own.
std::string Description(const CLI::App& app) {
  const std::string description = app.get_description();
  const std::size_t first = description.find('\n');
  const std::string rest = first == std::string::npos ? "" : Escaped(description.substr(first + 1)) + "\n\n";
  return Escaped(description.substr(0, first)) + ".\n\n" + rest;
}

// All commands without subcommands, in the order of the help. scdoc has no markup in headings.
std::string CommandSections(const CLI::App& app, const CLI::App& root) {
  std::string text;
  for (const CLI::App* command : VisibleCommands(app)) {
    if (!VisibleCommands(*command).empty()) {
      text += CommandSections(*command, root);
      continue;
    }
    text += "## " + CommandPath(*command) + "\n\n```\n" + Usage(*command) + "\n```\n\n" + Description(*command) +
            OptionEntries(*command, &root) + Sections(command->get_footer(), false);
  }
  return text;
}

}  // namespace

std::string CommandReference(const CLI::App& app) {
  std::string text =
      "# Commands\n\nThe output of `--help` for each command, generated from the commands' own descriptions. "
      "[The guide](../guide.md) shows how to use them together.\n\n```text\n" +
      app.help() + "```\n";
  const auto add = [&text](const auto& self, const CLI::App& parent) -> void {
    for (const CLI::App* command : VisibleCommands(parent)) {
      if (VisibleCommands(*command).empty())
        text += "\n## " + CommandPath(*command) + "\n\n```text\n" + command->help() + "```\n";
      self(self, *command);
    }
  };
  add(add, app);
  return text;
}

std::string ManPage(const CLI::App& app) {
  const std::string description = app.get_description();
  return app.get_name() + "(1)\n\n# NAME\n\n" + app.get_name() + " - " +
         Escaped(description.substr(0, description.find('\n'))) + "\n\n# SYNOPSIS\n\n" + Escaped(Usage(app)) +
         "\n\n# DESCRIPTION\n\n" + Description(app) +
         "# OPTIONS\n\nCommands that support these options accept them before or after the command's name.\n\n" +
         OptionEntries(app, nullptr) + "# COMMANDS\n\n" + CommandSections(app, app) + Sections(app.get_footer(), true);
}

}  // namespace tessera::cli
