#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/list.h"
#include "cli/commands/run.h"
#include "cli/top/top.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddRun(CommandLine& line) {
  CLI::App& run =
      AddCommand(line.app, "run",
                 "Run a program in a vGPU\n"
                 "The program needs no changes. tessera run makes a vGPU that ends with the program, or uses\n"
                 "the existing vGPUs that --vgpu names. If no daemon answers, it starts one that ends with its\n"
                 "last program. It sets CUDA_VISIBLE_DEVICES to the vGPU's GPU, unless you set it.\n"
                 "With --enforce kernel the daemon checks the program's calls of the kernel driver, so memory\n"
                 "limits also hold for OpenCL, Vulkan and static binaries.",
                 "Examples:\n"
                 "  tessera run --memory 20G --compute 30 -- python train.py\n"
                 "  tessera run --memory 8G --compute 20:100 --name notebook -- jupyter lab\n"
                 "  tessera run --memory 20G:60G -- ./simulate --large\n"
                 "  tessera run --vgpu team-a -- ./simulate\n"
                 "  tessera run --priority 2 --enforce kernel -- ./serve\n"
                 "  tessera run --space team-a --sm 40 -- ./serve\n"
                 "  tessera run --gpus 2 --memory 40G -- torchrun --nproc-per-node 2 train.py\n"
                 "  tessera run --gang job --gpu 1 -- ./rank 1\n"
                 "  tessera run --soft=2x16GiB --gpu 1 -- ./my-cuda-program\n"
                 "\n"
                 "Exit status:\n"
                 "  That of the program; 125 if Tessera failed, 126 if the program cannot be executed,\n"
                 "  127 if it is not found.");
  auto& choices = line.Keep<RunChoices>();
  auto* gpu = AddGpu(run, choices.settings);
  auto* name = run.add_option("--name", choices.name, "name of the vGPU (default: derived from the program)")
                   ->type_name("NAME")
                   ->check(Checked(CheckName));
  AddSettings(run, choices.settings);
  auto* space = AddSpace(run, choices.settings);
  auto* gpus = run.add_option("--gpus", choices.gpus,
                              "run on so many GPUs, with a vGPU on each; they are\ncalled NAME-0, NAME-1 and so on")
                   ->type_name("N")
                   ->check(CLI::Range(1, 64).description(""))
                   ->excludes(gpu)
                   ->excludes(space);
  run.add_option("--vgpu", choices.vgpus, "existing vGPUs to run in, one per GPU, separated by\ncommas")
      ->type_name("VGPU")
      ->excludes(gpu)
      ->excludes(gpus)
      ->excludes(name)
      ->excludes(run.get_option("--memory"))
      ->excludes(run.get_option("--swap-max"))
      ->excludes(run.get_option("--compute"))
      ->excludes(run.get_option("--weight"))
      ->excludes(run.get_option("--priority"))
      ->excludes(run.get_option("--sm"))
      ->excludes(space)
      ->excludes(run.get_option("--goal"))
      ->excludes(run.get_option("--gang"))
      ->excludes(run.get_option("--label"));
  run.add_option("--enforce",
                 "where to enforce limits: shim (default), in the\nprogram; kernel, also at the kernel driver")
      ->type_name("shim|kernel")
      ->check(Checked([](const std::string& where) -> Result<void> {
        if (where == "shim" || where == "kernel") return {};
        return Fail(EINVAL, "invalid --enforce value '" + where + "'", "use --enforce shim or --enforce kernel");
      }))
      ->each([&choices](const std::string& where) { choices.guarded = where == "kernel"; });
  AddCommon(run, line.common, kDaemon);
  // Only for the help: the program's words are taken off before the rest is read.
  run.add_option("[--] COMMAND [ARGUMENT]...")->expected(0, -1);
  Does(line, run, [&line, &choices] { return RunProgram(line.common, choices, line.program); });
}

void AddLists(CommandLine& line) {
  CLI::App& ps =
      AddCommand(line.app, "ps",
                 "List programs that use GPUs\n"
                 "WAITED is the time in which a program had work, and others or its limit kept its vGPU off\n"
                 "the GPU.",
                 "Examples:\n"
                 "  tessera ps\n"
                 "  tessera ps --json | jq '.processes[] | {pid, memory_bytes}'");
  AddCommon(ps, line.common, kAll);
  Does(line, ps, [&line] { return ListProcesses(line.common); });

  CLI::App& gpus = AddCommand(line.app, "gpus", "List GPUs and how much of them is in use",
                              "Examples:\n"
                              "  tessera gpus\n"
                              "  tessera gpus --json | jq '.gpus[].uuid'");
  AddCommon(gpus, line.common, kAll);
  Does(line, gpus, [&line] { return ListGpus(line.common); });
}

void AddTop(CommandLine& line) {
  CLI::App& top = AddCommand(line.app, "top",
                             "Show GPUs, vGPUs and programs, updated every second\n"
                             "Press q to quit, and h for the keys that freeze and thaw, change priorities and\n"
                             "settings, evict, sort and filter. With --json, print one object a line.",
                             "Examples:\n"
                             "  tessera top\n"
                             "  tessera top --delay 0.5\n"
                             "  tessera top --once\n"
                             "  tessera top --json | jq -c '{time_us, busy: [.gpus[].compute_busy_pct]}'\n"
                             "\n"
                             "Exit status:\n"
                             "  0 if you quit, or if --once printed everything; 1 on errors.");
  auto& choices = line.Keep<TopChoices>();
  top.add_option("-d,--delay", choices.delay_s, "time between updates, 0.1 to 60 (default 1)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 60.0).description(""));
  top.add_flag("--once", choices.once, "print once and exit: plain text, or with --json one\nobject");
  AddCommon(top, line.common, kAll);
  Does(line, top, [&line, &choices] { return Top(line.common, choices); });
}

}  // namespace

void AddProgramCommands(CommandLine& line) {
  AddRun(line);
  AddLists(line);
  AddTop(line);
}

}  // namespace tessera::cli
