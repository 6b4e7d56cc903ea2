#include "cli/reference/reference.h"

#include <algorithm>
#include <sstream>

namespace tessera::cli {
namespace {

constexpr std::size_t kTextColumn = 26;

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// "  title      text", the text on a line of its own where the title is long.
std::string Entry(const std::string& title, const std::string& text) {
  std::string line = "  " + title;
  if (line.size() + 2 > kTextColumn) line += "\n";
  const std::size_t last = line.size() - (line.find_last_of('\n') + 1);
  std::string padded = text;
  for (std::size_t at = 0; (at = padded.find('\n', at)) != std::string::npos;) {
    padded.insert(++at, std::string(kTextColumn, ' '));
  }
  return line + std::string(kTextColumn - last, ' ') + padded + "\n";
}

}  // namespace

std::vector<const CLI::App*> VisibleCommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<const CLI::Option*> VisibleOptions(const CLI::App& app) {
  return app.get_options(
      [](const CLI::Option* option) { return option->nonpositional() && !option->get_group().empty(); });
}

std::vector<const CLI::Option*> Positionals(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::string CommandPath(const CLI::App& app) {
  const std::string& own = app.get_name();
  return app.get_parent() ? CommandPath(*app.get_parent()) + " " + own : own;
}

std::string Usage(const CLI::App& app) {
  std::string text = CommandPath(app) + " [OPTION]...";
  if (!VisibleCommands(app).empty()) text += " COMMAND";
  for (const CLI::Option* option : Positionals(app)) text += " " + option->get_name(true);
  return text;
}

std::string OptionTitle(const CLI::Option& option) {
  std::string title;
  for (const std::string& name : option.get_snames()) title += (title.empty() ? "-" : ", -") + name;
  for (const std::string& name : option.get_lnames()) title += (title.empty() ? "--" : ", --") + name;
  if (option.get_type_name().empty()) return title;
  return title +
         (option.get_items_expected_min() > 0 ? " " + option.get_type_name() : "[=" + option.get_type_name() + "]");
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const {
  std::string text = "Usage: " + Usage(*app) + "\n\n" + app->get_description() + "\n";
  if (const auto commands = VisibleCommands(*app); !commands.empty()) {
    text += "\nCommands:\n";
    for (const CLI::App* command : commands) text += Entry(command->get_name(), FirstLine(command->get_description()));
  }
  text += "\nOptions:\n";
  for (const CLI::Option* option : VisibleOptions(*app)) text += Entry(OptionTitle(*option), option->get_description());
  if (!app->get_footer().empty()) text += "\n" + app->get_footer() + "\n";
  return text;
}

}  // namespace tessera::cli
