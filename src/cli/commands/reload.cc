#include "cli/commands/reload.h"

#include <nlohmann/json.hpp>

#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::Field;
using client::Json;
using client::TextField;

Result<int> Reload(const Common& common) {
  const auto answer = ApiClient(common.RunDirectory()).Post("/v1/reload", Json::object());
  if (!answer) return std::unexpected(answer.error());
  if (common.json) {
    PrintJson(*answer);
    return 0;
  }
  const Json& changes = Field(*answer, "changes");
  if (changes.empty()) {
    Print("Nothing changed.\n");
    return 0;
  }
  Table table({{"KEY"}, {"FROM"}, {"TO"}, {"TAKES EFFECT"}});
  for (const Json& change : changes) {
    table.Add({TextField(change, "key"), TextField(change, "from"), TextField(change, "to"),
               BoolField(change, "live") ? "now" : "when the daemon is restarted"});
  }
  Print(table);
  return 0;
}

}  // namespace tessera::cli
