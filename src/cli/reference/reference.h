// Help, manual and completion, all made from the descriptions of the commands (commands.h).
//
// They use the description of a command, whose first line is its summary; its footer, which has sections of indented
// lines, each under a title that ends in a colon ("Examples:"); and its options, where the type name tells how to
// complete the value: "DIR" by directories, "VGPU" by names of vGPUs. A command or option in the group "" is hidden.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tessera::cli {

// --help of a command.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// The manual page tessera(1) as scdoc(5) text.
std::string ManPage(const CLI::App& app);

// docs/reference/cli.md: the help of every command.
std::string CommandReference(const CLI::App& app);

// A script for bash-completion.
std::string BashCompletion(const CLI::App& app);

std::vector<const CLI::App*> VisibleCommands(const CLI::App& app);
std::vector<const CLI::Option*> VisibleOptions(const CLI::App& app);  // without positional arguments
std::vector<const CLI::Option*> Positionals(const CLI::App& app);

// "tessera vgpu create".
std::string CommandPath(const CLI::App& app);
// "tessera vgpu create [OPTION]... NAME".
std::string Usage(const CLI::App& app);
// "--memory SIZE", "--soft[=SPEC]", "-h, --help".
std::string OptionTitle(const CLI::Option& option);

}  // namespace tessera::cli
