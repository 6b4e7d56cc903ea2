#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/targets.h"
#include "cli/moving/drain.h"
#include "cli/moving/move.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddSuspension(CommandLine& line, const char* name, const char* description, const char* footer, bool suspends) {
  CLI::App& command = AddCommand(line.app, name, description, footer);
  auto& targets = line.Keep<std::vector<std::string>>();
  AddTargets(command, targets);
  auto& to = line.Keep<std::string>("memory");
  if (suspends) {
    command
        .add_option("--to", to,
                    "where what Tessera moves is kept: 'file' gives the host\nmemory back as well (default: memory)")
        ->type_name("memory|file")
        ->check(CLI::IsMember({"memory", "file"}).name(""));
  }
  AddCommon(command, line.common, kAll);
  Does(line, command, [&line, &targets, &to, suspends] {
    return suspends ? Suspend(line.common, targets, to == "file") : Resume(line.common, targets);
  });
}

void AddMigrate(CommandLine& line) {
  CLI::App& migrate =
      AddCommand(line.app, "migrate",
                 "Move a program, or a vGPU with its programs, to another GPU\n"
                 "The programs stand still meanwhile, and go on there: addresses, streams and graphs stay as\n"
                 "they are. The GPU must be of the same type. Returns when they are there. A program that uses\n"
                 "what cannot be moved is refused, and goes on.",
                 "Examples:\n"
                 "  tessera migrate notebook --gpu 1\n"
                 "  tessera migrate 4711 --gpu 1,0       # a program on GPUs 0 and 1: they change places\n"
                 "  tessera migrate notebook --gpu 1 --dry-run\n"
                 "\n"
                 "Exit status:\n"
                 "  0 if all of it has moved; 1 if not: then it goes on where it was.");
  struct Choices {
    std::string target, gpus;
    bool dry = false;
  };
  auto& choices = line.Keep<Choices>();
  migrate.add_option("PID|VGPU", choices.target)->required()->type_name("VGPU")->check(Checked(TargetPath));
  migrate
      .add_option("--gpu", choices.gpus,
                  "index or UUID of the GPU; for a program on several\nGPUs one for each, in their order now")
      ->required()
      ->type_name("GPU[,GPU...]");
  migrate.add_flag("--dry-run", choices.dry, "only say what would move, how long that takes,\nand what is in the way");
  AddCommon(migrate, line.common, kAll);
  Does(line, migrate, [&line, &choices] { return Migrate(line.common, choices.target, choices.gpus, choices.dry); });
}

void AddGpuCommands(CommandLine& line) {
  CLI::App& gpu = AddCommand(line.app, "gpu", "Drain a GPU, or let it take programs again",
                             "Examples:\n  tessera gpu drain 0\n  tessera gpu undrain 0");
  gpu.require_subcommand(1);
  CLI::App& drain = AddCommand(gpu, "drain",
                               "Empty a GPU, and keep newcomers off it\n"
                               "Its vGPUs go to other GPUs of the same type, with their programs, as far as promises\n"
                               "can be kept there; each that stays is named with the reason. New vGPUs and programs\n"
                               "are refused until 'tessera gpu undrain', also after the daemon was restarted. Say it\n"
                               "again to try again. Returns when nothing moves any more. For operators.",
                               "Examples:\n"
                               "  tessera gpu drain 0\n"
                               "  tessera gpu drain 0 --dry-run\n"
                               "\n"
                               "Exit status:\n"
                               "  0 if nothing is left on the GPU, 1 if something stays.");
  struct Choices {
    std::string gpu;
    bool dry = false;
  };
  auto& choices = line.Keep<Choices>();
  drain.add_option("GPU", choices.gpu, "index or UUID of the GPU")->required()->check(Checked(GpuPath));
  drain.add_flag("--dry-run", choices.dry, "only say what would go where, and what would stay");
  AddCommon(drain, line.common, kAll);
  Does(line, drain, [&line, &choices] { return Drain(line.common, choices.gpu, choices.dry); });

  CLI::App& undrain = AddCommand(gpu, "undrain",
                                 "Let a GPU take programs again\n"
                                 "vGPUs that went to other GPUs stay there. For operators.",
                                 "Examples:\n  tessera gpu undrain 0");
  auto& back = line.Keep<std::string>();
  undrain.add_option("GPU", back, "index or UUID of the GPU")->required()->check(Checked(GpuPath));
  AddCommon(undrain, line.common, kDaemon);
  Does(line, undrain, [&line, &back] { return Undrain(line.common, back); });
}

void AddRebalance(CommandLine& line) {
  CLI::App& rebalance =
      AddCommand(line.app, "rebalance",
                 "Make room for a vGPU by moving others\n"
                 "Where no GPU has room for a vGPU with this request, moves those that cost the fewest bytes, all\n"
                 "from one GPU to others of its type, so that it has. No promise is broken. Nothing is kept free\n"
                 "for the vGPU: make it next. Returns when there is room. For operators.",
                 "Examples:\n"
                 "  tessera rebalance --memory-request 60G --dry-run\n"
                 "  tessera rebalance --memory-request 20G --compute-request 50\n"
                 "\n"
                 "Exit status:\n"
                 "  0 if a GPU has room, 1 if not.");
  auto& choices = line.Keep<RoomChoices>();
  rebalance.add_option("--memory-request", choices.memory, "memory that the vGPU is to be promised")->type_name("SIZE");
  rebalance.add_option("--compute-request", choices.compute, "percent of the time that it is to be promised")
      ->type_name("PCT");
  rebalance.add_flag("--dry-run", choices.dry, "only say what would move");
  AddCommon(rebalance, line.common, kAll);
  Does(line, rebalance, [&line, &choices] { return Rebalance(line.common, choices); });
}

}  // namespace

void AddMovingCommands(CommandLine& line) {
  AddSuspension(line, "suspend",
                "Take programs off their GPU altogether\n"
                "Their queued work ends, their memory goes to host memory, and the driver saves the rest,\n"
                "contexts included. Nothing of them is on the GPU until 'tessera resume'; they stand still.\n"
                "Returns when that is so. A program that uses what the driver cannot save is refused.\n"
                "Targets are the same as for 'tessera freeze'.",
                "Examples:\n"
                "  tessera suspend notebook\n"
                "  tessera suspend 4711 --to file\n"
                "\n"
                "Exit status:\n"
                "  0 if all programs are suspended, 1 if not: those go on.",
                true);
  AddSuspension(line, "resume",
                "Bring suspended programs back to their GPU\n"
                "Room is made for what the driver saved; their other memory comes back when they use it.\n"
                "Returns when they run. Targets are the same as for 'tessera freeze'.",
                "Examples:\n"
                "  tessera resume notebook\n"
                "\n"
                "Exit status:\n"
                "  0 if all programs run, 1 if not: those stay suspended.",
                false);
  AddMigrate(line);
  AddGpuCommands(line);
  AddRebalance(line);
}

}  // namespace tessera::cli
