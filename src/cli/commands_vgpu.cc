#include "base/duration.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/vgpu.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddVgpuLists(CommandLine& line, CLI::App& vgpu) {
  CLI::App& ls =
      AddCommand(vgpu, "ls",
                 "List vGPUs\n"
                 "STATE is running, waiting (it has work, and others or its limit keep it off the GPU), idle or\n"
                 "frozen. Where channels are steered, several run at a time.",
                 "Examples:\n  tessera vgpu ls\n  tessera vgpu ls --quiet");
  auto& quiet = line.Keep<bool>();
  ls.add_flag("-q,--quiet", quiet, "print names only");
  AddCommon(ls, line.common, kAll);
  Does(line, ls, [&line, &quiet] { return ListVgpus(line.common, quiet); });

  CLI::App& show = AddCommand(vgpu, "show", "Show a vGPU", "Examples:\n  tessera vgpu show team-a");
  auto& name = line.Keep<std::string>();
  AddVgpuName(show, name);
  AddCommon(show, line.common, kAll);
  Does(line, show, [&line, &name] { return ShowVgpu(line.common, name); });
}

void AddVgpuRecord(CommandLine& line, CLI::App& vgpu) {
  const auto is_span = Checked([](const std::string& text) { return ParseDuration(text); });
  CLI::App& command = AddCommand(vgpu, "record",
                                 "Record what vGPUs use, as a CSV for tessera plan\n"
                                 "A row for each vGPU and interval: when the interval began, the part of it in which\n"
                                 "the vGPU had work (its waits included), and its memory at the end.",
                                 "Examples:\n"
                                 "  tessera vgpu record --for 24h >day.csv\n"
                                 "  tessera vgpu record --every 1min --for 8h >shift.csv");
  auto& times = line.Keep<RecordTimes>();
  command.add_option("--every", times.every, "length of an interval (default: 10s)")->type_name("TIME")->check(is_span);
  command.add_option("--for", times.lasts, "end after this time (default: never)")->type_name("TIME")->check(is_span);
  AddCommon(command, line.common, kDaemon);
  Does(line, command, [&line, &times] { return RecordVgpus(line.common, times); });
}

void AddVgpuChanges(CommandLine& line, CLI::App& vgpu) {
  auto& name = line.Keep<std::string>();
  auto& settings = line.Keep<VgpuSettings>();

  CLI::App& create = AddCommand(vgpu, "create", "Make a vGPU that lasts until you remove it",
                                "Examples:\n"
                                "  tessera vgpu create team-a --memory 20G --compute 30\n"
                                "  tessera vgpu create batch --gpu 1 --compute 0:100 --weight 10\n"
                                "  tessera vgpu create service --priority 2\n"
                                "  tessera vgpu create small --space team-a --sm 25");
  AddVgpuName(create, name)->type_name("NAME");
  AddGpu(create, settings);
  AddSettings(create, settings);
  AddSpace(create, settings);
  create.add_flag("--within-quota", settings.within_quota, "your user's quota counts, even if you are an operator");
  AddCommon(create, line.common, kAll);
  Does(line, create, [&line, &name, &settings] { return CreateVgpu(line.common, name, settings); });

  CLI::App& set = AddCommand(vgpu, "set",
                             "Change a vGPU, even while programs run in it\n"
                             "Settings that you do not give stay as they are.",
                             "Examples:\n"
                             "  tessera vgpu set team-a --memory 40G\n"
                             "  tessera vgpu set team-a --compute 50:100\n"
                             "  tessera vgpu set team-a --label team=a --label stage=test");
  AddVgpuName(set, name);
  AddSettings(set, settings);
  AddCommon(set, line.common, kAll);
  Does(line, set, [&line, &name, &settings] { return SetVgpu(line.common, name, settings); });

  CLI::App& rm =
      AddCommand(vgpu, "rm", "Remove a vGPU", "Examples:\n  tessera vgpu rm team-a\n  tessera vgpu rm --force team-a");
  auto& force = line.Keep<bool>();
  AddVgpuName(rm, name);
  rm.add_flag("-f,--force", force,
              "remove it even while programs run in it; they lose\nthe GPU for good, and get errors");
  AddCommon(rm, line.common, kDaemon);
  Does(line, rm, [&line, &name, &force] { return RemoveVgpu(line.common, name, force); });
}

void AddVgpu(CommandLine& line) {
  CLI::App& vgpu = AddCommand(line.app, "vgpu", "List, make, change and remove vGPUs",
                              "Examples:\n"
                              "  tessera vgpu create team-a --memory 20G --compute 30\n"
                              "  tessera vgpu set team-a --compute 50");
  vgpu.require_subcommand(1);
  AddVgpuLists(line, vgpu);
  AddVgpuChanges(line, vgpu);
  AddVgpuRecord(line, vgpu);
}

}  // namespace

void AddVgpuCommands(CommandLine& line) { AddVgpu(line); }

}  // namespace tessera::cli
