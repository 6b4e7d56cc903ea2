// What commands and options there are. Help, manual, completion and the messages about wrong usage are made from this.
#include "base/duration.h"
#include "base/size.h"
#include "cli/cdi.h"
#include "cli/command_line.h"
#include "cli/demo/demo.h"
#include "cli/doctor/doctor.h"
#include "cli/events.h"
#include "cli/evict.h"
#include "cli/list.h"
#include "cli/output.h"
#include "cli/reference/reference.h"
#include "cli/reload.h"
#include "cli/run.h"
#include "cli/settings.h"
#include "cli/settings_options.h"
#include "cli/steer.h"
#include "cli/top/top.h"
#include "cli/trace.h"
#include "cli/version.h"
#include "cli/vgpu.h"

namespace tessera::cli {
namespace {

// Which of the common choices a command takes.
enum Takes : unsigned { kRunDir = 1, kSoft = 2, kJson = 4, kDaemon = kRunDir | kSoft, kAll = kDaemon | kJson };

void AddCommon(CLI::App& app, Common& common, unsigned takes) {
  if (takes & kRunDir) {
    app.add_option("--run-dir", common.run_dir, "folder of the daemon's sockets")->type_name("DIR");
  }
  if (takes & kSoft) {
    const char* const text = "the soft GPU, a small GPU on the CPU; SPEC such\nas 2x16GiB says what it is like";
    app.add_flag("--soft{default}", text)->type_name("SPEC")->each([&common](const std::string& spec) {
      common.soft = true;
      common.soft_spec = spec == "default" ? "" : spec;
    });
  }
  if (takes & kJson) app.add_flag("--json", common.json, "answer as JSON");
}

CLI::App& AddCommand(CLI::App& parent, const char* name, const char* description, const char* footer) {
  CLI::App& command = *parent.add_subcommand(name, description);
  command.footer(footer);
  return command;
}

// What `command` does when it is chosen.
void Does(CommandLine& line, CLI::App& command, const Action& action) {
  command.callback([&line, action] { line.action = action; });
}

CLI::Option* AddGpu(CLI::App& app, VgpuSettings& settings) {
  return app.add_option("--gpu", settings.gpu, "index, UUID, or auto for the one with most free\nmemory (default)")
      ->type_name("GPU")
      ->check(IsSetting(&VgpuSettings::gpu));
}

CLI::Option* AddVgpuName(CLI::App& app, std::string& name) {
  return app.add_option("NAME", name)->required()->type_name("VGPU")->check(Checked(CheckName));
}

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

void AddVgpuLists(CommandLine& line, CLI::App& vgpu) {
  CLI::App& ls = AddCommand(vgpu, "ls", "List vGPUs", "Examples:\n  tessera vgpu ls\n  tessera vgpu ls --quiet");
  auto& quiet = line.Keep<bool>();
  ls.add_flag("-q,--quiet", quiet, "names only");
  AddCommon(ls, line.common, kAll);
  Does(line, ls, [&line, &quiet] { return ListVgpus(line.common, quiet); });

  CLI::App& show = AddCommand(vgpu, "show", "Show one vGPU", "Examples:\n  tessera vgpu show team-a");
  auto& name = line.Keep<std::string>();
  AddVgpuName(show, name);
  AddCommon(show, line.common, kAll);
  Does(line, show, [&line, &name] { return ShowVgpu(line.common, name); });
}

void AddVgpuChanges(CommandLine& line, CLI::App& vgpu) {
  auto& name = line.Keep<std::string>();
  auto& settings = line.Keep<VgpuSettings>();

  CLI::App& create = AddCommand(vgpu, "create", "Make a vGPU that lasts until it is removed",
                                "Examples:\n"
                                "  tessera vgpu create team-a --memory 20G --compute 30\n"
                                "  tessera vgpu create batch --gpu 1 --compute 0:100 --weight 10\n"
                                "  tessera vgpu create service --priority 2");
  AddVgpuName(create, name)->type_name("NAME");
  AddGpu(create, settings);
  AddSettings(create, settings);
  AddCommon(create, line.common, kAll);
  Does(line, create, [&line, &name, &settings] { return CreateVgpu(line.common, name, settings); });

  CLI::App& set = AddCommand(vgpu, "set",
                             "Change a vGPU, also while programs run in it\n"
                             "What is not given stays as it is.",
                             "Examples:\n"
                             "  tessera vgpu set team-a --memory 40G\n"
                             "  tessera vgpu set team-a --compute 50:100");
  AddVgpuName(set, name);
  AddSettings(set, settings);
  AddCommon(set, line.common, kAll);
  Does(line, set, [&line, &name, &settings] { return SetVgpu(line.common, name, settings); });

  CLI::App& rm =
      AddCommand(vgpu, "rm", "Remove a vGPU", "Examples:\n  tessera vgpu rm team-a\n  tessera vgpu rm --force team-a");
  auto& force = line.Keep<bool>();
  AddVgpuName(rm, name);
  rm.add_flag("-f,--force", force, "also while programs run in it: they lose the GPU\nfor good");
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
}

void AddEvents(CommandLine& line) {
  CLI::App& events = AddCommand(line.app, "events",
                                "Show what happened: vGPUs made, programs that came and went, warnings\n"
                                "The daemon keeps the last 2000. With --follow and --json: one object a line.",
                                "Examples:\n"
                                "  tessera events --last 20\n"
                                "  tessera events -f\n"
                                "  tessera events -f --json | jq 'select(.type == \"memory.refused\")'");
  auto& choices = line.Keep<EventChoices>();
  events.add_flag("-f,--follow", choices.follow, "go on with what happens, until interrupted");
  events.add_option("--last", choices.last, "how many of the past ones (default 100, or 10 with\n--follow)")
      ->type_name("N")
      ->check(CLI::Range(0, 2000).description(""));
  AddCommon(events, line.common, kAll);
  Does(line, events, [&line, &choices] { return ShowEvents(line.common, choices); });
}

void AddReload(CommandLine& line) {
  CLI::App& reload =
      AddCommand(line.app, "reload",
                 "Let the daemon read its configuration again, while programs run\n"
                 "Shows what that changes: at once, or when the daemon starts again. Where the file has\n"
                 "an error, nothing is changed. SIGHUP does the same, and the daemon's log has the answer.",
                 "Examples:\n  tessera reload");
  AddCommon(reload, line.common, kAll);
  Does(line, reload, [&line] { return Reload(line.common); });
}

void AddTrace(CommandLine& line) {
  CLI::App& trace =
      AddCommand(line.app, "trace",
                 "Write a timeline of the GPUs\n"
                 "Who ran and who waited for what, freezes, moves of memory: for https://ui.perfetto.dev, and for\n"
                 "chrome://tracing. The daemon keeps the last 65536 changes, a minute or more of a busy GPU. When\n"
                 "it logs an error, or is killed, what it kept is saved for --last.",
                 "Examples:\n"
                 "  tessera trace --for 10s -o t.json\n"
                 "  tessera trace --past 1min\n"
                 "  tessera trace --last -o what-went-wrong.json");
  auto& choices = line.Keep<TraceChoices>();
  const auto is_span = Checked([](const std::string& text) { return ParseDuration(text); });
  auto* lasts =
      trace.add_option("--for", choices.lasts, "from now on: 500ms, 10s, 2min")->type_name("TIME")->check(is_span);
  auto* past = trace.add_option("--past", choices.past, "until now (default 1min)")->type_name("TIME")->check(is_span);
  trace.add_flag("--last", choices.last, "when something last went wrong")->excludes(lasts)->excludes(past);
  lasts->excludes(past);
  trace.add_option("-o,--output", choices.output, "where to (default tessera-trace.json; - for stdout)")
      ->type_name("FILE");
  AddCommon(trace, line.common, kDaemon);
  Does(line, trace, [&line, &choices] { return WriteTrace(line.common, choices); });
}

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
  AddRun(line);
  AddLists(line);
  AddTop(line);
  AddVgpu(line);
  AddSteering(line);
  AddEvents(line);
  AddTrace(line);
  AddReload(line);
  AddCdi(line);
  AddDoctor(line);
  AddDemo(line);
  AddVersion(line);
  AddReference(line);
}

}  // namespace tessera::cli
