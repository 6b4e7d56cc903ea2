#include "base/size.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/evict.h"
#include "cli/commands/steer.h"
#include "cli/commands/targets.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddFreeze(CommandLine& line, const char* name, const char* description, const char* footer,
               Result<int> (*steer)(const Common&, const std::vector<std::string>&)) {
  CLI::App& command = AddCommand(line.app, name, description, footer);
  auto& targets = line.Keep<std::vector<std::string>>();
  AddTargets(command, targets);
  AddCommon(command, line.common, kDaemon);
  Does(line, command, [&line, &targets, steer] { return steer(line.common, targets); });
}

void AddEvict(CommandLine& line) {
  CLI::App& evict =
      AddCommand(line.app, "evict",
                 "Move programs' memory from their GPU to host memory\n"
                 "Returns when the memory is moved, however long that takes. Memory that cannot be moved\n"
                 "stays, and so does memory beyond memory.swap.max. The programs are stopped meanwhile. The\n"
                 "memory comes back when they have work; freeze them to keep it out.\n"
                 "Targets are the same as for 'tessera freeze'.",
                 "Examples:\n"
                 "  tessera evict notebook\n"
                 "  tessera evict 4711 --to 2G\n"
                 "\n"
                 "Exit status:\n"
                 "  0 if all of it was moved; 1 if some was not, or if the eviction stalled for 30 s.");
  struct Choices {
    std::vector<std::string> targets;
    std::string keep = "0";
  };
  auto& choices = line.Keep<Choices>();
  AddTargets(evict, choices.targets);
  evict
      .add_option("--to", choices.keep,
                  "memory of each target that may stay on the GPU,\ncontexts included (default 0)")
      ->type_name("SIZE")
      ->check(Checked([](const std::string& size) { return ParseSize(size); }));
  AddCommon(evict, line.common, kAll);
  Does(line, evict, [&line, &choices] { return Evict(line.common, choices.targets, choices.keep); });
}

void AddSteering(CommandLine& line) {
  AddFreeze(line, "freeze",
            "Take programs off their GPU\n"
            "Programs keep their memory, and run again after 'tessera thaw'. A program is stopped even in the\n"
            "middle of a kernel if 'tessera gpus' shows control by channels. A number is a process; write\n"
            "vgpu:NAME for a vGPU whose name is a number. If one target fails, the others are still frozen.",
            "Examples:\n"
            "  tessera freeze team-a\n"
            "  tessera freeze 4711 4712 vgpu:2024\n"
            "\n"
            "Exit status:\n"
            "  0 if all targets are frozen, 1 if not.",
            Freeze);
  AddFreeze(line, "thaw",
            "Let frozen programs run again\n"
            "Programs that limits or priorities hold back continue to wait. Targets are the same as for\n"
            "'tessera freeze'.",
            "Examples:\n"
            "  tessera thaw team-a\n"
            "\n"
            "Exit status:\n"
            "  0 if all targets may run again, 1 if not.",
            Thaw);

  AddEvict(line);

  CLI::App& adopt =
      AddCommand(line.app, "adopt",
                 "Put a running program into a vGPU\n"
                 "The program must be unmanaged in 'tessera ps': it was not started through Tessera. From now\n"
                 "on the vGPU's share of time holds for it.",
                 "Examples:\n  tessera adopt 4711 --vgpu team-a");
  struct Choices {
    std::string pid, vgpu;
  };
  auto& choices = line.Keep<Choices>();
  adopt.add_option("PID", choices.pid)->required()->check(Checked(ParsePid));
  adopt.add_option("--vgpu", choices.vgpu, "vGPU to put it into")
      ->required()
      ->type_name("VGPU")
      ->check(Checked(CheckName));
  AddCommon(adopt, line.common, kAll);
  Does(line, adopt, [&line, &choices] { return Adopt(line.common, choices.pid, choices.vgpu); });
}

}  // namespace

void AddSteeringCommands(CommandLine& line) { AddSteering(line); }

}  // namespace tessera::cli
