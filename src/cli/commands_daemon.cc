#include "base/duration.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/commands/events.h"
#include "cli/commands/reload.h"
#include "cli/commands/trace.h"
#include "cli/page/page.h"
#include "cli/vgpu/settings_options.h"

namespace tessera::cli {
namespace {

void AddEvents(CommandLine& line) {
  CLI::App& events = AddCommand(line.app, "events",
                                "Show events: vGPUs made, programs started and ended, warnings\n"
                                "The daemon keeps the last 2000. With --follow and --json, print one object a line.",
                                "Examples:\n"
                                "  tessera events --last 20\n"
                                "  tessera events -f\n"
                                "  tessera events -f --json | jq 'select(.type == \"memory.refused\")'");
  auto& choices = line.Keep<EventChoices>();
  events.add_flag("-f,--follow", choices.follow, "also show new events, until interrupted");
  events.add_option("--last", choices.last, "number of past events (default 100, or 10 with\n--follow)")
      ->type_name("N")
      ->check(CLI::Range(0, 2000).description(""));
  AddCommon(events, line.common, kAll);
  Does(line, events, [&line, &choices] { return ShowEvents(line.common, choices); });
}

void AddTrace(CommandLine& line) {
  CLI::App& trace =
      AddCommand(line.app, "trace",
                 "Write a timeline of the GPUs\n"
                 "It shows who ran, who waited and why, freezes, and moves of memory. Open it at\n"
                 "https://ui.perfetto.dev or chrome://tracing. The daemon keeps the last 65536 changes, at least\n"
                 "a minute of a busy GPU. It saves them for --last when it logs an error or is killed.",
                 "Examples:\n"
                 "  tessera trace --for 10s -o t.json\n"
                 "  tessera trace --past 1min\n"
                 "  tessera trace --last -o what-went-wrong.json");
  auto& choices = line.Keep<TraceChoices>();
  const auto is_span = Checked([](const std::string& text) { return ParseDuration(text); });
  auto* lasts = trace.add_option("--for", choices.lasts, "trace this long from now: 500ms, 10s, 2min")
                    ->type_name("TIME")
                    ->check(is_span);
  auto* past =
      trace.add_option("--past", choices.past, "trace the past (default 1min)")->type_name("TIME")->check(is_span);
  trace.add_flag("--last", choices.last, "the trace that was saved at the last error")->excludes(lasts)->excludes(past);
  lasts->excludes(past);
  trace.add_option("-o,--output", choices.output, "file to write (default tessera-trace.json; - for stdout)")
      ->type_name("FILE");
  AddCommon(trace, line.common, kDaemon);
  Does(line, trace, [&line, &choices] { return WriteTrace(line.common, choices); });
}

void AddPage(CommandLine& line) {
  CLI::App& page =
      AddCommand(line.app, "page",
                 "Open the live page in a browser\n"
                 "Prints an address for a browser on this computer and serves it until this command is stopped.\n"
                 "The page shows and steers what you may. The address has a token that holds as long as this\n"
                 "command runs: whoever has it has your rights.",
                 "Examples:\n"
                 "  tessera page\n"
                 "  ssh -t -L 9478:127.0.0.1:9478 NODE tessera page --port 9478");
  auto& port = line.Keep<std::uint16_t>();
  page.add_option("--port", port, "port to listen on (default: any that is free)")->type_name("PORT");
  AddCommon(page, line.common, kAll);
  Does(line, page, [&line, &port] { return ServePage(line.common, port); });
}

void AddReload(CommandLine& line) {
  CLI::App& reload =
      AddCommand(line.app, "reload",
                 "Reload the configuration without stopping programs\n"
                 "Shows what changes now and what changes when the daemon is restarted. If the file has an\n"
                 "error, nothing changes. SIGHUP does the same, and writes the result to the daemon's log.",
                 "Examples:\n  tessera reload");
  AddCommon(reload, line.common, kAll);
  Does(line, reload, [&line] { return Reload(line.common); });
}

}  // namespace

void AddDaemonCommands(CommandLine& line) {
  AddEvents(line);
  AddTrace(line);
  AddPage(line);
  AddReload(line);
}

}  // namespace tessera::cli
