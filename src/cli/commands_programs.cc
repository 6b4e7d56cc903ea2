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
                 "The program needs no change. Its vGPU is made for it and ends with it, unless --vgpu names\n"
                 "one that exists. Where no daemon answers, one is started that ends with its last program.\n"
                 "CUDA_VISIBLE_DEVICES is set to the vGPU's GPU unless you set it.\n"
                 "With --enforce kernel the daemon answers for the kernel driver: memory limits hold whatever\n"
                 "the program uses, also OpenCL, Vulkan and static binaries.",
                 "Examples:\n"
                 "  tessera run --memory 20G --compute 30 -- python train.py\n"
                 "  tessera run --memory 8G --compute 20:100 --name notebook -- jupyter lab\n"
                 "  tessera run --memory 20G:60G -- ./simulate --large\n"
                 "  tessera run --vgpu team-a -- ./simulate\n"
                 "  tessera run --priority 2 --enforce kernel -- ./serve\n"
                 "  tessera run --soft=2x16GiB --gpu 1 -- ./my-cuda-program\n"
                 "\n"
                 "Exit status:\n"
                 "  The program's own; 125 when Tessera failed, 126 when the program cannot be\n"
                 "  executed, 127 when it is not found.");
  auto& choices = line.Keep<RunChoices>();
  auto* gpu = AddGpu(run, choices.settings);
  auto* name = run.add_option("--name", choices.name, "name of the vGPU (default: after the program)")
                   ->type_name("NAME")
                   ->check(Checked(CheckName));
  AddSettings(run, choices.settings);
  run.add_option("--vgpu", choices.vgpus, "run in these existing vGPUs, one per GPU,\nseparated by commas")
      ->type_name("VGPU")
      ->excludes(gpu)
      ->excludes(name)
      ->excludes(run.get_option("--memory"))
      ->excludes(run.get_option("--swap-max"))
      ->excludes(run.get_option("--compute"))
      ->excludes(run.get_option("--weight"))
      ->excludes(run.get_option("--priority"));
  run.add_option(
         "--enforce",
         "where limits are enforced: in the program by the\nshim (default), or in front of the kernel driver too")
      ->type_name("shim|kernel")
      ->check(Checked([](const std::string& where) -> Result<void> {
        if (where == "shim" || where == "kernel") return {};
        return Fail(EINVAL, "nothing enforces limits in '" + where + "'", "use --enforce shim or --enforce kernel");
      }))
      ->each([&choices](const std::string& where) { choices.guarded = where == "kernel"; });
  AddCommon(run, line.common, kDaemon);
  // Only for the help: the program's words are taken off before the rest is read.
  run.add_option("[--] COMMAND [ARGUMENT]...")->expected(0, -1);
  Does(line, run, [&line, &choices] { return RunProgram(line.common, choices, line.program); });
}

void AddLists(CommandLine& line) {
  CLI::App& ps = AddCommand(line.app, "ps", "List the programs that use GPUs",
                            "Examples:\n"
                            "  tessera ps\n"
                            "  tessera ps --json | jq '.processes[] | {pid, memory_bytes}'");
  AddCommon(ps, line.common, kAll);
  Does(line, ps, [&line] { return ListProcesses(line.common); });

  CLI::App& gpus = AddCommand(line.app, "gpus", "List the GPUs and what is taken of them",
                              "Examples:\n"
                              "  tessera gpus\n"
                              "  tessera gpus --json | jq '.gpus[].uuid'");
  AddCommon(gpus, line.common, kAll);
  Does(line, gpus, [&line] { return ListGpus(line.common); });
}

void AddTop(CommandLine& line) {
  CLI::App& top = AddCommand(line.app, "top",
                             "Show GPUs, vGPUs and programs as they change\n"
                             "On a terminal, until q is pressed; h shows what keys do: freeze and thaw, priorities,\n"
                             "settings, eviction, order and filter. With --json: one object a line.",
                             "Examples:\n"
                             "  tessera top\n"
                             "  tessera top --delay 0.5\n"
                             "  tessera top --once\n"
                             "  tessera top --json | jq -c '{time_us, busy: [.gpus[].compute_busy_pct]}'\n"
                             "\n"
                             "Exit status:\n"
                             "  0 when it was left, or with --once all was shown; 1 when it was not.");
  auto& choices = line.Keep<TopChoices>();
  top.add_option("-d,--delay", choices.delay_s, "how long between two looks, 0.1 to 60 (default 1)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 60.0).description(""));
  top.add_flag("--once", choices.once, "show it once as plain text, or with --json as one\nobject");
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
