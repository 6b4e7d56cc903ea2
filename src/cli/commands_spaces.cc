#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/space.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

CLI::Option* AddSpaceName(CLI::App& app, std::string& name) {
  return app.add_option("SPACE", name, "name of the space")->required()->check(Checked(CheckName));
}

}  // namespace

void AddSpaceCommands(CommandLine& line) {
  CLI::App& space =
      AddCommand(line.app, "space", "List, make and remove spaces",
                 "A space holds vGPUs of one user on one GPU that run at the same time, each on its part of\n"
                 "the GPU's SMs. Their programs share their faults.\n"
                 "\n"
                 "Examples:\n"
                 "  tessera run --space team-a --sm 60 -- ./serve\n"
                 "  tessera run --space team-a --sm 40 -- python train.py\n"
                 "  tessera space ls");
  space.require_subcommand(1);

  CLI::App& ls = AddCommand(space, "ls", "List spaces",
                            "Examples:\n  tessera space ls\n  tessera space ls --json | jq '.spaces[].server_pid'");
  AddCommon(ls, line.common, kAll);
  Does(line, ls, [&line] { return ListSpaces(line.common); });

  CLI::App& show = AddCommand(space, "show", "Show a space", "Examples:\n  tessera space show team-a");
  auto& shown = line.Keep<std::string>();
  AddSpaceName(show, shown);
  AddCommon(show, line.common, kAll);
  Does(line, show, [&line, &shown] { return ShowSpace(line.common, shown); });

  CLI::App& create = AddCommand(space, "create",
                                "Make a space that lasts until you remove it\n"
                                "Others are made with their first vGPU, and end with their last one.",
                                "Examples:\n  tessera space create team-a --gpu 1");
  auto& made = line.Keep<std::string>();
  auto& settings = line.Keep<VgpuSettings>();
  AddSpaceName(create, made);
  AddGpu(create, settings);
  AddCommon(create, line.common, kAll);
  Does(line, create, [&line, &made, &settings] { return CreateSpace(line.common, made, settings); });

  CLI::App& rm = AddCommand(space, "rm",
                            "Remove a space that was made to last\n"
                            "If vGPUs are in it, it ends with the last of them.",
                            "Examples:\n  tessera space rm team-a");
  auto& gone = line.Keep<std::string>();
  AddSpaceName(rm, gone);
  AddCommon(rm, line.common, kDaemon);
  Does(line, rm, [&line, &gone] { return RemoveSpace(line.common, gone); });
}

}  // namespace tessera::cli
