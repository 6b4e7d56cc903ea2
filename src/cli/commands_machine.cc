#include "cli/bench/bench.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/cdi.h"
#include "cli/commands/version.h"
#include "cli/demo/demo.h"
#include "cli/doctor/doctor.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddSeccomp(CommandLine& line, CLI::App& cdi) {
  CLI::App& seccomp =
      AddCommand(cdi, "seccomp",
                 "Write a seccomp profile that puts a container behind the kernel gate\n"
                 "A container with this profile is held to the vGPU's limits as a program of\n"
                 "'tessera run --enforce kernel' is. The profile is that of your container engine with other\n"
                 "rules for ioctl. It needs runc 1.1 or newer, or crun 0.20 or newer.",
                 "Examples:\n"
                 "  tessera cdi seccomp --output /etc/tessera/seccomp.json\n"
                 "  podman run --security-opt seccomp=/etc/tessera/seccomp.json \\\n"
                 "    --device tessera.dev/vgpu=team-a IMAGE");
  auto& choices = line.Keep<SeccompChoices>();
  seccomp
      .add_option("--vgpu", choices.vgpus,
                  "the container's vGPUs, one for each GPU, separated\nby commas (default: those of its CDI device)")
      ->type_name("VGPU")
      ->delimiter(',')
      ->check(Checked(CheckName));
  seccomp.add_option("--base", choices.base, "the engine's own profile (default\n/usr/share/containers/seccomp.json)")
      ->type_name("FILE");
  seccomp.add_option("-o,--output", choices.output, "file to replace (default -: stdout)")->type_name("FILE");
  AddCommon(seccomp, line.common, kDaemon);
  Does(line, seccomp, [&line, &choices] { return WriteSeccompProfile(line.common, choices); });
}

void AddCdi(CommandLine& line) {
  CLI::App& cdi = AddCommand(line.app, "cdi", "Describe vGPUs for container engines",
                             "Examples:\n  tessera cdi generate --output /etc/cdi/tessera.json");
  cdi.require_subcommand(1);
  CLI::App& generate =
      AddCommand(cdi, "generate",
                 "Write a CDI specification that lets engines give vGPUs to containers\n"
                 "Each vGPU is a device tessera.dev/vgpu=NAME. Write the file again after you made or removed\n"
                 "vGPUs. A container gets the shim, the daemon's socket and the name of the vGPU. It needs the\n"
                 "driver, too: from nvidia.com/gpu=0 of the NVIDIA Container Toolkit, or by --driver.",
                 "Examples:\n"
                 "  tessera cdi generate --output /etc/cdi/tessera.json\n"
                 "  podman run --device nvidia.com/gpu=0 --device tessera.dev/vgpu=team-a IMAGE");
  auto& choices = line.Keep<CdiChoices>();
  generate
      .add_option("-o,--output", choices.output,
                  "file to replace: /etc/cdi/NAME.json, or\n/var/run/cdi/NAME.json to last until the next boot\n"
                  "(default -: stdout)")
      ->type_name("FILE");
  generate
      .add_option("--vgpu", choices.vgpus,
                  "only these vGPUs, separated by commas (default: all\nexcept those of 'tessera run')")
      ->type_name("VGPU")
      ->delimiter(',')
      ->check(Checked(CheckName));
  generate.add_flag(
      "--driver", choices.driver,
      "include the NVIDIA driver's libraries and device\nnodes, if nothing else gives them to containers");
  generate.add_flag("--require-gate", choices.require_gate,
                    "containers start only with the profile of\n'tessera cdi seccomp'");
  AddCommon(generate, line.common, kDaemon);
  Does(line, generate, [&line, &choices] { return GenerateCdi(line.common, choices); });
  AddSeccomp(line, cdi);
}

void AddDoctor(CommandLine& line) {
  CLI::App& doctor = AddCommand(line.app, "doctor",
                                "Check what Tessera can enforce on this machine\n"
                                "Says what to do about each problem. It changes nothing.",
                                "Examples:\n  tessera doctor\n  tessera doctor --soft --json\n"
                                "\n"
                                "Exit status:\n"
                                "  0 if programs can run on a GPU here (with --soft: on the soft GPU), 1 if not.");
  AddCommon(doctor, line.common, kAll);
  Does(line, doctor, [&line] { return Doctor(line.common); });
}

void AddDemo(CommandLine& line) {
  CLI::App& demo =
      AddCommand(line.app, "demo",
                 "Show programs that share one GPU\n"
                 "It uses a real GPU if there is one, else the soft GPU, and a daemon of its own. First it\n"
                 "measures one program alone. Then three programs run together with 20, 30 and 50 % of the\n"
                 "time, and one tries to take more memory than its limit. Then two of them swap their shares,\n"
                 "and the one that was refused gets more memory. ACHIEVED is the work that a program completed,\n"
                 "compared with its speed alone; it is not a figure of the daemon.\n"
                 "In the end two programs each want 70 % of a GPU's memory. Without Tessera the second one\n"
                 "fails; with it both finish. A soft GPU has 1 GiB for this. The overflow, about half of the\n"
                 "GPU's memory, must fit into 90 % of free RAM; if it does not, the demo skips this part.",
                 "Examples:\n"
                 "  tessera demo\n"
                 "  tessera demo --soft --json\n"
                 "\n"
                 "Exit status:\n"
                 "  0 if all results were right, 1 if not.");
  auto& seconds = line.Keep<double>(12);
  demo.add_option("--seconds", seconds, "time for which the three run (default 12)")
      ->type_name("SECONDS")
      ->check(CLI::Range(2.0, 45.0).description(""));
  AddCommon(demo, line.common, kSoft | kJson);
  Does(line, demo, [&line, &seconds] { return Demo(line.common, seconds); });
}

void AddBench(CommandLine& line) {
  CLI::App& bench =
      AddCommand(line.app, "bench",
                 "Measure a GPU for plans\n"
                 "With --gpu-model it measures what Tessera's actions cost on this GPU: switches between\n"
                 "programs, freezes and thaws, memory that moves, a context, the memory's bandwidth, and\n"
                 "programs that run at once in a space. It writes a file of TOML, which plans read. It has a\n"
                 "daemon and programs of its own and takes half a minute. Nothing else should use the GPU.",
                 "Examples:\n"
                 "  tessera bench --gpu-model --output my-gpu.toml\n"
                 "  tessera bench --gpu-model --soft=1GiB");
  auto& choices = line.Keep<BenchChoices>();
  bench.add_flag("--gpu-model", choices.gpu_model, "measure the model of a GPU")->required();
  bench.add_option("-o,--output", choices.output, "file to replace (default -: stdout)")->type_name("FILE");
  bench.add_option("--gpu", choices.gpu, "index of the GPU (default 0)")->type_name("N");
  bench.add_flag("--force", choices.force, "although other programs use the GPU");
  AddCommon(bench, line.common, kSoft);
  Does(line, bench, [&line, &choices] { return Bench(line.common, choices); });
}

void AddVersion(CommandLine& line) {
  CLI::App& version = AddCommand(line.app, "version", "Show the versions of this program and of the daemon",
                                 "Examples:\n  tessera version --json");
  AddCommon(version, line.common, kAll);
  Does(line, version, [&line] { return ShowVersion(line.common); });
}

}  // namespace

void AddMachineCommands(CommandLine& line) {
  AddCdi(line);
  AddDoctor(line);
  AddDemo(line);
  AddBench(line);
  AddVersion(line);
}

}  // namespace tessera::cli
