#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/cdi.h"
#include "cli/commands/version.h"
#include "cli/demo/demo.h"
#include "cli/doctor/doctor.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddCdi(CommandLine& line) {
  CLI::App& cdi = AddCommand(line.app, "cdi", "Describe vGPUs to container engines",
                             "Examples:\n  tessera cdi generate --output /etc/cdi/tessera.json");
  cdi.require_subcommand(1);
  CLI::App& generate =
      AddCommand(cdi, "generate",
                 "Write a CDI specification, by which engines give vGPUs to containers\n"
                 "Each vGPU is a device tessera.dev/vgpu=NAME. Write it again when vGPUs were made or removed.\n"
                 "A container gets the shim, the daemon's socket and the vGPU's name. It gets the driver from\n"
                 "elsewhere, such as nvidia.com/gpu=0 of the NVIDIA Container Toolkit, or with --driver from this.",
                 "Examples:\n"
                 "  tessera cdi generate --output /etc/cdi/tessera.json\n"
                 "  podman run --device nvidia.com/gpu=0 --device tessera.dev/vgpu=team-a IMAGE");
  auto& choices = line.Keep<CdiChoices>();
  generate
      .add_option(
          "-o,--output", choices.output,
          "the file, which is replaced whole: /etc/cdi/NAME.json,\nor /var/run/cdi/NAME.json until the next boot "
          "(default -\nfor stdout)")
      ->type_name("FILE");
  generate
      .add_option("--vgpu", choices.vgpus, "only these, separated by commas (default: all but those\nof 'tessera run')")
      ->type_name("VGPU")
      ->delimiter(',')
      ->check(Checked(CheckName));
  generate.add_flag("--driver", choices.driver,
                    "with the NVIDIA driver's libraries and device nodes,\nfor engines that nobody else gives them");
  AddCommon(generate, line.common, kDaemon);
  Does(line, generate, [&line, &choices] { return GenerateCdi(line.common, choices); });
}

void AddDoctor(CommandLine& line) {
  CLI::App& doctor = AddCommand(line.app, "doctor",
                                "Say what this machine can and cannot enforce, and what to do\n"
                                "Changes nothing.",
                                "Examples:\n  tessera doctor\n  tessera doctor --soft --json\n"
                                "\n"
                                "Exit status:\n"
                                "  0 when programs can run on a GPU here (with --soft: on the soft GPU), 1 when not.");
  AddCommon(doctor, line.common, kAll);
  Does(line, doctor, [&line] { return Doctor(line.common); });
}

void AddDemo(CommandLine& line) {
  CLI::App& demo =
      AddCommand(line.app, "demo",
                 "Show programs that share one GPU\n"
                 "On a real GPU if there is one, else on the soft GPU; with a daemon of its own. First one\n"
                 "program is timed alone. Then three run at once, with 20, 30 and 50 % of the time; one tries\n"
                 "to take more memory than it may. Then, while they run, two of them change places, and the\n"
                 "one that was refused gets more memory. Achieved is what the programs completed since then,\n"
                 "against the speed alone: not what the daemon says that it gave them.\n"
                 "At last two programs each want 70 % of a GPU's memory: without Tessera, where the second one\n"
                 "dies, and with it. A soft GPU has 1 GiB for that. What does not fit must find place in 90 %\n"
                 "of the free RAM (about half of the GPU's memory); else it says that this is not shown.",
                 "Examples:\n"
                 "  tessera demo\n"
                 "  tessera demo --soft --json\n"
                 "\n"
                 "Exit status:\n"
                 "  0 when all results were right, 1 when not.");
  auto& seconds = line.Keep<double>(12);
  demo.add_option("--seconds", seconds, "how long the three run (default 12)")
      ->type_name("SECONDS")
      ->check(CLI::Range(2.0, 45.0).description(""));
  AddCommon(demo, line.common, kSoft | kJson);
  Does(line, demo, [&line, &seconds] { return Demo(line.common, seconds); });
}

void AddVersion(CommandLine& line) {
  CLI::App& version = AddCommand(line.app, "version", "Show the version of this program and of the daemon",
                                 "Examples:\n  tessera version --json");
  AddCommon(version, line.common, kAll);
  Does(line, version, [&line] { return ShowVersion(line.common); });
}

}  // namespace

void AddMachineCommands(CommandLine& line) {
  AddCdi(line);
  AddDoctor(line);
  AddDemo(line);
  AddVersion(line);
}

}  // namespace tessera::cli
