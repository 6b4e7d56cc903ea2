#include "cli/reference/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli/command_line.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Every command that people may use, also those below others.
void Visit(const CLI::App& app, const std::function<void(const CLI::App&)>& visit) {
  for (const CLI::App* command : VisibleCommands(app)) {
    visit(*command);
    Visit(*command, visit);
  }
}

TEST(Reference, EveryCommandHasExamples) {
  CommandLine line;
  AddCommands(line);
  Visit(line.app, [](const CLI::App& command) {
    EXPECT_THAT(command.help(), HasSubstr("\nExamples:\n  tessera ")) << CommandPath(command);
    EXPECT_THAT(command.help(), HasSubstr("Usage: " + CommandPath(command)));
  });
}

TEST(Reference, LinesFitATerminal) {
  CommandLine line;
  AddCommands(line);
  Visit(line.app, [](const CLI::App& command) {
    std::istringstream lines(command.help());
    for (std::string text; std::getline(lines, text);) EXPECT_LE(text.size(), 100u) << text;
  });
}

TEST(Reference, ManualDescribesEveryOption) {
  CommandLine line;
  AddCommands(line);
  const std::string page = ManPage(line.app);
  EXPECT_TRUE(page.starts_with("tessera(1)\n\n# NAME\n\ntessera - "));
  Visit(line.app, [&](const CLI::App& command) {
    for (const CLI::Option* option : VisibleOptions(command)) {
      std::string name = option->get_lnames().front();
      EXPECT_THAT(page, HasSubstr(name.substr(0, name.find('-')))) << CommandPath(command);
    }
  });
  for (const std::string heading : {"# EXAMPLES", "# EXIT STATUS", "# ENVIRONMENT", "# FILES"}) {
    EXPECT_THAT(page, HasSubstr("\n" + heading + "\n"));
  }
}

// TESSERA_UPDATE_DOCS=1 writes it.
TEST(Reference, TheDocumentIsOfTheseCommands) {
  CommandLine line;
  AddCommands(line);
  const std::string path = TESSERA_DOCS "/reference/cli.md";
  if (std::getenv("TESSERA_UPDATE_DOCS")) std::ofstream(path) << CommandReference(line.app);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), CommandReference(line.app))
      << "TESSERA_UPDATE_DOCS=1 cli_test --gtest_filter='Reference.*' makes it anew";
}

TEST(Reference, WhatIsInternalIsNotShown) {
  CommandLine line;
  AddCommands(line);
  EXPECT_THAT(line.app.help(), Not(HasSubstr("internal")));
  EXPECT_THAT(ManPage(line.app), Not(HasSubstr("internal")));
  EXPECT_THAT(BashCompletion(line.app), Not(HasSubstr("internal")));
}

TEST(Reference, CompletionKnowsCommandsOptionsAndNames) {
  CommandLine line;
  AddCommands(line);
  const std::string script = BashCompletion(line.app);
  EXPECT_THAT(script, HasSubstr("\"tessera vgpu\") choices=\"ls show create set rm record\""));
  EXPECT_THAT(script, HasSubstr("--run-dir) _filedir -d"));
  EXPECT_THAT(script, HasSubstr("--vgpu) COMPREPLY=($(compgen -W \"$(tessera vgpu ls --quiet"));
}

TEST(OptionTitle, ShowsWhetherAValueMustFollow) {
  CLI::App app;
  EXPECT_EQ(OptionTitle(*app.add_flag("-q,--quiet")), "-q, --quiet");
  std::string text;
  EXPECT_EQ(OptionTitle(*app.add_option("--memory", text)->type_name("SIZE")), "--memory SIZE");
  EXPECT_EQ(OptionTitle(*app.add_flag("--soft{x}")->type_name("SPEC")), "--soft[=SPEC]");
}

}  // namespace
}  // namespace tessera::cli
