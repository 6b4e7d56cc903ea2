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
      "Each runs in a vGPU of its own, with its own amount of memory and share of the GPU's time, and needs no "
      "change.");
  line.app.footer(
      "Examples:\n"
      "  tessera demo\n"
      "  tessera run --memory 20G --compute 30 -- python train.py\n"
      "  tessera ps\n"
      "\n"
      "Exit status:\n"
      "  0 when it worked, 1 when it did not, 2 when it was used wrong. 'tessera run' has its own.\n"
      "\n"
      "Environment:\n"
      "  TESSERA_RUN_DIR  folder of the daemon's sockets, where --run-dir does not name it\n"
      "  NO_COLOR         no colours; no redrawing, but of 'tessera top'\n"
      "\n"
      "Files:\n"
      "  /run/tessera              folder of root's daemon; api.sock is where this program asks\n"
      "  $XDG_RUNTIME_DIR/tessera  that of a daemon of your own, with its log tesserad.log\n"
      "  (both with -soft at the end for the soft GPU)");
  line.app.set_version_flag("--version", "tessera " TESSERA_VERSION, "show the version");
  AddCommon(line.app, line.common, kAll);
  AddProgramCommands(line);
  AddVgpuCommands(line);
  AddSteeringCommands(line);
  AddDaemonCommands(line);
  AddMachineCommands(line);
  AddReference(line);
}

}  // namespace tessera::cli
