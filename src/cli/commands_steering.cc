#include "base/size.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/evict.h"
#include "cli/commands/steer.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddFreeze(CommandLine& line, const char* name, const char* description, const char* footer,
               Result<int> (*steer)(const Common&, const std::vector<std::string>&)) {
  CLI::App& command = AddCommand(line.app, name, description, footer);
  auto& targets = line.Keep<std::vector<std::string>>();
  command.add_option("PID|VGPU...", targets)
      ->required()
      ->expected(1, -1)
      ->type_name("VGPU")
      ->check(Checked(TargetPath));
  AddCommon(command, line.common, kDaemon);
  Does(line, command, [&line, &targets, steer] { return steer(line.common, targets); });
}

void AddEvict(CommandLine& line) {
  CLI::App& evict =
      AddCommand(line.app, "evict",
                 "Move programs' memory from their GPU to host memory\n"
                 "Returns when it is there, however long that takes. What of it cannot be moved stays, and\n"
                 "what memory.swap.max leaves no room for. The programs stand still meanwhile; the memory\n"
                 "comes back as soon as they have work, so freeze them to keep it out.\n"
                 "Targets are as with 'tessera freeze'.",
                 "Examples:\n"
                 "  tessera evict notebook\n"
                 "  tessera evict 4711 --to 2G\n"
                 "\n"
                 "Exit status:\n"
                 "  0 when it was moved, 1 when not all of it was, or when nothing was moved for 30 s.");
  struct Choices {
    std::vector<std::string> targets;
    std::string keep = "0";
  };
  auto& choices = line.Keep<Choices>();
  evict.add_option("PID|VGPU...", choices.targets)
      ->required()
      ->expected(1, -1)
      ->type_name("VGPU")
      ->check(Checked(TargetPath));
  evict.add_option("--to", choices.keep, "how much of each may stay on the GPU, contexts included (default 0)")
      ->type_name("SIZE")
      ->check(Checked([](const std::string& size) { return ParseSize(size); }));
  AddCommon(evict, line.common, kAll);
  Does(line, evict, [&line, &choices] { return Evict(line.common, choices.targets, choices.keep); });
}

void AddSteering(CommandLine& line) {
  AddFreeze(line, "freeze",
            "Take programs off their GPU\n"
            "Also in the middle of a kernel, where 'tessera gpus' shows control by channels. They keep their\n"
            "memory, and run again after 'tessera thaw'. A number is a process; write vgpu:NAME for a vGPU\n"
            "whose name is a number. What fails does not keep the others from being frozen.",
            "Examples:\n"
            "  tessera freeze team-a\n"
            "  tessera freeze 4711 4712 vgpu:2024\n"
            "\n"
            "Exit status:\n"
            "  0 when all of them are frozen, 1 when not.",
            Freeze);
  AddFreeze(line, "thaw",
            "Let frozen programs go on\n"
            "What limits and priorities hold back goes on when its turn comes. Targets are as with\n"
            "'tessera freeze'.",
            "Examples:\n"
            "  tessera thaw team-a\n"
            "\n"
            "Exit status:\n"
            "  0 when all of them may run again, 1 when not.",
            Thaw);

  AddEvict(line);

  CLI::App& adopt =
      AddCommand(line.app, "adopt",
                 "Put a program that runs already into a vGPU\n"
                 "One that 'tessera ps' lists as unmanaged: nobody started it through Tessera. From then on\n"
                 "it has its share of the vGPU's time.",
                 "Examples:\n  tessera adopt 4711 --vgpu team-a");
  struct Choices {
    std::string pid, vgpu;
  };
  auto& choices = line.Keep<Choices>();
  adopt.add_option("PID", choices.pid)->required()->check(Checked(ParsePid));
  adopt.add_option("--vgpu", choices.vgpu, "which vGPU")->required()->type_name("VGPU")->check(Checked(CheckName));
  AddCommon(adopt, line.common, kAll);
  Does(line, adopt, [&line, &choices] { return Adopt(line.common, choices.pid, choices.vgpu); });
}

}  // namespace

void AddSteeringCommands(CommandLine& line) { AddSteering(line); }

}  // namespace tessera::cli
