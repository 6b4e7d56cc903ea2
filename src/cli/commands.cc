#include "cli/commands.h"

#include "cli/command_options.h"
#include "cli/reference/reference.h"
#include "cli/terminal/output.h"

namespace tessera::cli {
namespace {

// For the build, which makes files from them.
void AddReference(CommandLine& line) {
  const std::pair<const char*, std::string (*)(const CLI::App&)> writers[] = {{"internal-man", ManPage},
                                                                              {"internal-completion", BashCompletion}};
  for (const auto& [name, write] : writers) {
    line.app.add_subcommand(name)->group("")->callback([&line, write] {
      line.action = [&line, write] {
        Print(write(line.app));
        return 0;
      };
    });
  }
}

}  // namespace

void AddCommands(CommandLine& line) {
  line.app.description(
      "Share one GPU among many programs\n"
      "Each program runs in a vGPU with its own amount of memory and share of the GPU's time. It needs no changes.");
  line.app.footer(
      "Examples:\n"
      "  tessera demo\n"
      "  tessera run --memory 20G --compute 30 -- python train.py\n"
      "  tessera ps\n"
      "\n"
      "Exit status:\n"
      "  0 on success, 1 on failure, 2 for wrong usage. 'tessera run' has its own.\n"
      "\n"
      "Environment:\n"
      "  TESSERA_RUN_DIR  directory of the daemon's sockets, if --run-dir is not given\n"
      "  NO_COLOR         no colours, and no redrawing except in 'tessera top'\n"
      "\n"
      "Files:\n"
      "  /run/tessera              directory of root's daemon; this program connects to its api.sock\n"
      "  $XDG_RUNTIME_DIR/tessera  directory of a daemon of your own, with its log tesserad.log\n"
      "  (for the soft GPU both end in -soft)");
  line.app.set_version_flag("--version", "tessera " TESSERA_VERSION, "show the version");
  AddCommon(line.app, line.common, kAll);
  AddProgramCommands(line);
  AddVgpuCommands(line);
  AddSpaceCommands(line);
  AddSteeringCommands(line);
  AddMovingCommands(line);
  AddDaemonCommands(line);
  AddPlanCommand(line);
  AddMachineCommands(line);
  AddReference(line);
}

}  // namespace tessera::cli
