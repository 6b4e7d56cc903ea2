#include "cli/command_line.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using Words = std::vector<std::string>;

struct Outcome {
  int status;
  std::string error;  // what was printed on stderr
};

// A command line that goes as far as choosing what to do.
struct Dry {
  Dry() { AddCommands(line); }

  Outcome Run(const Words& words) {
    testing::internal::CaptureStderr();
    const int status = line.Choose(words).value_or(0);
    return {status, testing::internal::GetCapturedStderr()};
  }

  CommandLine line;
};

TEST(CommandLine, GuessesWhatWasMeant) {
  EXPECT_EQ(Dry().Run({"docter"}).error,
            "tessera: unknown command 'docter'; did you mean 'doctor'? see 'tessera --help'\n");
  EXPECT_EQ(Dry().Run({"vgpu", "creat", "a"}).error,
            "tessera: unknown command 'creat'; did you mean 'create'? see 'tessera vgpu --help'\n");
  EXPECT_EQ(Dry().Run({"ps", "--jsno"}).error,
            "tessera: unknown option '--jsno'; did you mean '--json'? see 'tessera ps --help'\n");
  EXPECT_EQ(Dry().Run({"vgpu", "set", "a", "--memroy=2G"}).error,
            "tessera: unknown option '--memroy'; did you mean '--memory'? see 'tessera vgpu set --help'\n");
}

TEST(CommandLine, GuessesNothingFarFetched) {
  EXPECT_EQ(Dry().Run({"kubernetes"}).error, "tessera: unknown command 'kubernetes'; see 'tessera --help'\n");
}

TEST(CommandLine, WrongUsageIsStatus2) {
  for (const Words& words : {Words{},
                             Words{"docter"},
                             Words{"ps", "--bogus"},
                             Words{"ps", "surplus"},
                             Words{"vgpu"},
                             Words{"vgpu", "create"},
                             Words{"vgpu", "create", "a", "--memory", "20X"},
                             Words{"vgpu", "create", "a", "--compute", "60:30"},
                             Words{"vgpu", "create", "a", "--weight", "0"},
                             Words{"vgpu", "set", "a", "--priority", "16"},
                             Words{"freeze"},
                             Words{"freeze", "a", "b/c"},
                             Words{"thaw", "0"},
                             Words{"adopt"},
                             Words{"adopt", "4711"},
                             Words{"adopt", "python", "--vgpu", "a"},
                             Words{"adopt", "4711", "--vgpu", "a/b"},
                             Words{"vgpu", "create", "a/b"},
                             Words{"vgpu", "set", "a", "--memory"},
                             Words{"demo", "--seconds", "1000"}}) {
    const Outcome outcome = Dry().Run(words);
    EXPECT_EQ(outcome.status, 2) << outcome.error;
    EXPECT_TRUE(outcome.error.starts_with("tessera: ")) << outcome.error;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }
}

TEST(CommandLine, RunAnswersForItselfWith125) {
  for (const Words& words : {Words{"run", "--bogus", "--", "true"}, Words{"run", "--memory", "20X", "--", "true"},
                             Words{"run", "--vgpu", "a", "--memory", "2G", "--", "true"},
                             Words{"run", "--vgpu", "a", "--priority", "2", "--", "true"},
                             Words{"run", "--enforce", "gate", "--", "true"}, Words{"run", "--memory"}}) {
    const Outcome outcome = Dry().Run(words);
    EXPECT_EQ(outcome.status, 125) << outcome.error;
    EXPECT_TRUE(outcome.error.starts_with("tessera: ")) << outcome.error;
  }
}

TEST(CommandLine, NamesWhatItDoesNotTake) {
  EXPECT_NE(Dry().Run({"vgpu", "create", "a", "--memory", "20X"}).error.find("invalid size '20X'"), std::string::npos);
  EXPECT_NE(Dry().Run({"run", "--enforce", "gate", "--", "true"}).error.find("'gate'; use --enforce shim or"),
            std::string::npos);
  EXPECT_NE(Dry().Run({"freeze", "99999999999"}).error.find("write vgpu:99999999999"), std::string::npos);
  EXPECT_NE(Dry().Run({"run", "--priority", "-1", "--", "true"}).error.find("from 0 to 15"), std::string::npos);
}

TEST(CommandLine, TheProgramsWordsAreItsOwn) {
  for (const Words& words : {Words{"run", "--memory", "2G", "--soft", "--", "ps", "--json", "--", "-x"},
                             Words{"run", "--memory=2G", "--soft", "ps", "--json", "--", "-x"},
                             Words{"--soft", "run", "--memory", "2G", "ps", "--json", "--", "-x"}}) {
    Dry dry;
    const Outcome outcome = dry.Run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(dry.line.program, (Words{"ps", "--json", "--", "-x"}));
    EXPECT_TRUE(dry.line.common.soft);
    EXPECT_FALSE(dry.line.common.json);
  }
}

TEST(CommandLine, CommonChoicesGoBeforeOrAfterTheCommand) {
  for (const Words& words : {Words{"--json", "--run-dir", "/x", "--soft=2x1GiB", "ps"},
                             Words{"ps", "--json", "--run-dir=/x", "--soft=2x1GiB"}}) {
    Dry dry;
    const Outcome outcome = dry.Run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_TRUE(dry.line.common.json);
    EXPECT_EQ(dry.line.common.RunDirectory(), "/x");
    EXPECT_TRUE(dry.line.common.soft);
    EXPECT_EQ(dry.line.common.soft_spec, "2x1GiB");
  }
}

TEST(CommandLine, FreezeTakesSeveralTargets) {
  for (const Words& words :
       {Words{"freeze", "team-a"}, Words{"freeze", "4711", "team-a", "vgpu:12"}, Words{"thaw", "--soft", "4711"},
        Words{"adopt", "4711", "--vgpu", "team-a", "--json"}, Words{"adopt", "--vgpu=team-a", "4711"}}) {
    const Outcome outcome = Dry().Run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
  }
}

TEST(CommandLine, BothWaysToEnforceAreTaken) {
  for (const std::string where : {"shim", "kernel"}) {
    Dry dry;
    const Outcome outcome = dry.Run({"run", "--enforce", where, "--", "true"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(dry.line.program, Words{"true"});
  }
}

TEST(CommandLine, SoftWithoutSpecTakesNoWord) {
  Dry dry;
  EXPECT_EQ(dry.Run({"vgpu", "show", "--soft", "team-a"}).status, 0);
  EXPECT_TRUE(dry.line.common.soft);
  EXPECT_EQ(dry.line.common.soft_spec, "");
}

TEST(ProgramBegin, SkipsOptionsAndTheirValues) {
  Dry dry;
  const CLI::App& run = *dry.line.app.get_subcommand("run");
  EXPECT_EQ(ProgramBegin(run, {"--memory", "2G", "python", "--help"}, 0), 2u);
  EXPECT_EQ(ProgramBegin(run, {"--memory=2G", "--soft", "python"}, 0), 2u);
  EXPECT_EQ(ProgramBegin(run, {"--soft", "--", "-strange"}, 0), 1u);
  EXPECT_EQ(ProgramBegin(run, {"--bogus", "python"}, 0), 1u);
  EXPECT_EQ(ProgramBegin(run, {"--memory"}, 0), 1u);
  EXPECT_EQ(ProgramBegin(run, {}, 0), 0u);
}

}  // namespace
}  // namespace tessera::cli
