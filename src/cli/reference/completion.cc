// Bash completion from the description of the commands.
#include "cli/reference/reference.h"

namespace tessera::cli {
namespace {

std::string CommandWords(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : VisibleCommands(app)) words += (words.empty() ? "" : " ") + command->get_name();
  return words;
}

std::string OptionWords(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : VisibleOptions(app)) {
    for (const std::string& name : option->get_lnames()) words += (words.empty() ? "--" : " --") + name;
  }
  return words;
}

// Every command below `app`, depth first.
void Collect(const CLI::App& app, std::vector<const CLI::App*>& commands) {
  for (const CLI::App* command : VisibleCommands(app)) {
    commands.push_back(command);
    Collect(*command, commands);
  }
}

// Completion of options' values, one case for each kind of value.
std::string ValueCases(const std::vector<const CLI::App*>& commands) {
  std::string directories, vgpus, others;
  const auto add = [](std::string& pattern, const std::string& name) {
    const std::string word = "--" + name;
    if (("|" + pattern + "|").find("|" + word + "|") == std::string::npos)
      pattern += (pattern.empty() ? "" : "|") + word;
  };
  for (const CLI::App* command : commands) {
    for (const CLI::Option* option : VisibleOptions(*command)) {
      if (option->get_items_expected_min() == 0) continue;
      const std::string type = option->get_type_name();
      for (const std::string& name : option->get_lnames()) {
        add(type == "DIR" ? directories : type == "VGPU" ? vgpus : others, name);
      }
    }
  }
  return "    " + directories + ") _filedir -d; return ;;\n    " + vgpus +
         ") COMPREPLY=($(compgen -W \"$(tessera vgpu ls --quiet 2>/dev/null)\" -- \"$cur\")); return ;;\n    " +
         others + ") return ;;\n";
}

std::string WordCase(const CLI::App& app) {
  std::string words = CommandWords(app);
  for (const CLI::Option* option : Positionals(app)) {
    if (option->get_type_name() == "VGPU") words += " $(tessera vgpu ls --quiet 2>/dev/null)";
  }
  return "    \"" + CommandPath(app) + "\") choices=\"" + words + "\"; options=\"" + OptionWords(app) + "\" ;;\n";
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::vector<const CLI::App*> commands = {&app};
  Collect(app, commands);
  std::string paths, cases;
  for (const CLI::App* command : commands) {
    if (command != &app) paths += (paths.empty() ? "\"" : "|\"") + CommandPath(*command) + "\"";
    cases += WordCase(*command);
  }
  return R"(# bash completion for tessera, made by its build.
_tessera() {
  local cur prev words cword
  _init_completion || return
  local path=tessera i
  for ((i = 1; i < cword; i++)); do
    if [[ $path == "tessera run" && ${words[i]} == -- ]]; then
      _command_offset $((i + 1))
      return
    fi
    case "$path ${words[i]}" in
      )" +
         paths + R"() path="$path ${words[i]}" ;;
    esac
  done
  case "$prev" in
)" + ValueCases(commands) +
         R"(  esac
  local choices= options=
  case "$path" in
)" + cases +
         R"(  esac
  [[ $cur == -* ]] && choices=$options
  COMPREPLY=($(compgen -W "$choices" -- "$cur"))
}
complete -F _tessera tessera
)";
}

}  // namespace tessera::cli
