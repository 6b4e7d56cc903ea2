#include "cli/commands/space.h"

#include <utility>

#include "cli/commands/listing.h"
#include "cli/terminal/table.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::Field;
using client::Json;
using client::TextField;
using client::TextsField;

namespace {

std::string StateOf(const Json& space) {
  const std::string error = TextField(space, "error");
  return TextField(space, "state") + (error.empty() ? "" : ": " + error);
}

// "in turns (at once is 0.82x of that, tried 12.3 s ago)"
std::string ModeOf(const Json& space) {
  const std::string mode = TextField(space, "mode") == "in_turns" ? "in turns" : "at once";
  const std::string tried = Time(space, "mode_tried_ago_us");
  return tried.empty() ? mode : mode + " (" + TextField(space, "mode_why") + ", tried " + tried + " ago)";
}

}  // namespace

Result<int> ListSpaces(const Common& common) {
  return List(common, "/v1/spaces", "spaces", [](const Json& spaces) {
    Table table({{"NAME"},
                 {"GPU", Align::kRight},
                 {"USER", Align::kRight},
                 {"SM %", Align::kRight},
                 {"VGPUS", Align::kRight},
                 {"STEERED"},
                 {"STATE"}});
    for (const Json& space : spaces) {
      table.Add({TextField(space, "name"), Count(space, "gpu"), Count(space, "uid"), Percent(space, "sm_limits_pct"),
                 std::to_string(Field(space, "vgpus").size()), BoolField(space, "steered") ? "yes" : "no",
                 TextField(space, "state")});
    }
    Print(table);
  });
}

Result<int> ShowSpace(const Common& common, const std::string& name) {
  const auto space = ApiClient(common.RunDirectory()).Get("/v1/spaces/" + name);
  if (!space) return std::unexpected(space.error());
  if (common.json) {
    PrintJson(*space);
    return 0;
  }
  const std::string vgpus = TextsField(*space, "vgpus");
  const std::string server = Count(*space, "server_pid");
  const std::pair<const char*, std::string> lines[] = {
      {"name", TextField(*space, "name")},
      {"gpu", Count(*space, "gpu") + " (" + TextField(*space, "gpu_uuid") + ")"},
      {"user", Count(*space, "uid")},
      {"lives", BoolField(*space, "kept") ? "until it is removed" : "as long as it has vGPUs"},
      {"state", StateOf(*space)},
      {"MPS server", server.empty() ? "none" : "process " + server},
      {"steered", BoolField(*space, "steered") ? "by its channels" : "by gates: its channels are not known"},
      {"runs", ModeOf(*space)},
      {"vgpus", vgpus.empty() ? "none" : vgpus},
      {"SM limits", Percent(*space, "sm_limits_pct") + " % in sum"},
      {"pipe directory", TextField(*space, "pipe_directory")},
  };
  for (const auto& [title, value] : lines)
    Print(title + std::string(18 - std::string_view(title).size(), ' ') + value + "\n");
  return 0;
}

Result<int> CreateSpace(const Common& common, const std::string& name, const VgpuSettings& settings) {
  auto body = RequestBody(settings);
  if (!body) return std::unexpected(body.error());
  (*body)["name"] = name;
  const auto space = ApiClient(common.RunDirectory()).Post("/v1/spaces", *body);
  if (!space) return std::unexpected(space.error());
  if (common.json) PrintJson(*space);
  return 0;
}

Result<int> RemoveSpace(const Common& common, const std::string& name) {
  const auto gone = ApiClient(common.RunDirectory()).Delete("/v1/spaces/" + name);
  if (!gone) return std::unexpected(gone.error());
  return 0;
}

}  // namespace tessera::cli
