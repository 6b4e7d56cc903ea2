#include "base/duration.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/events.h"
#include "cli/commands/reload.h"
#include "cli/commands/trace.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

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

}  // namespace

void AddDaemonCommands(CommandLine& line) {
  AddEvents(line);
  AddTrace(line);
  AddReload(line);
}

}  // namespace tessera::cli
