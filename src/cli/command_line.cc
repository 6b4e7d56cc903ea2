#include "cli/command_line.h"

#include <algorithm>

#include "cli/nearest.h"
#include "cli/reference/reference.h"
#include "cli/terminal/output.h"

namespace tessera::cli {
namespace {

// The innermost command that the words have chosen: "vgpu create".
const CLI::App& Chosen(const CLI::App& app) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  return *chosen;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : VisibleCommands(app)) names.push_back(command->get_name());
  return names;
}

}  // namespace

std::size_t ProgramBegin(const CLI::App& command, const std::vector<std::string>& words, std::size_t begin) {
  std::size_t i = begin;
  while (i < words.size() && words[i].starts_with("-") && words[i] != "--") {
    const CLI::Option* option = command.get_option_no_throw(words[i]);
    const bool takes_next = option && option->get_items_expected_min() > 0;
    i += takes_next ? 2 : 1;
  }
  return std::min(i, words.size());
}

CommandLine::CommandLine() : app("", "tessera") {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("--help,-h", "show this help");
  app.require_subcommand(1);
}

int CommandLine::Run(int argc, char** argv) {
  if (const auto status = Choose({argv + 1, argv + argc})) return *status;
  const auto status = action();
  if (status) return *status;
  PrintError(status.error());
  return error_status;
}

std::optional<int> CommandLine::Choose(std::vector<std::string> words) {
  const std::size_t command = ProgramBegin(app, words, 0);
  if (command < words.size() && words[command] == "run") {
    TakeProgram(words, ProgramBegin(*app.get_subcommand("run"), words, command + 1));
  }
  std::reverse(words.begin(), words.end());  // CLI11 takes words from the back
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    PrintError(Explain(error));
    return usage_status;
  }
  return std::nullopt;
}

void CommandLine::TakeProgram(std::vector<std::string>& words, std::size_t begin) {
  program.assign(words.begin() + begin, words.end());
  if (!program.empty() && program[0] == "--") program.erase(program.begin());
  words.resize(begin);
  // Callers must be able to tell failures of Tessera from the program's own, as with env(1).
  error_status = usage_status = 125;
}

Error CommandLine::Explain(const CLI::ParseError& error) const {
  const CLI::App& chosen = Chosen(app);
  const std::vector<std::string> commands = CommandNames(chosen);
  const std::string see = "see '" + CommandPath(chosen) + " --help'";
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) {
    const bool no_command = error.get_name() == "RequiredError" && !commands.empty();
    return {EINVAL, no_command ? "no command given" : error.what(), see};
  }
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  const bool option = word.starts_with("-");
  const std::string kind = option ? "unknown option" : commands.empty() ? "unexpected word" : "unknown command";
  const std::string meant = Nearest(word, option ? OptionNames(chosen) : commands);
  return {EINVAL, kind + " '" + word + "'", meant.empty() ? see : "did you mean '" + meant + "'? " + see};
}

}  // namespace tessera::cli
