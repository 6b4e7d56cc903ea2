#include "cli/commands/version.h"

#include "cli/launch/daemon.h"
#include "cli/terminal/output.h"
#include "client/json_fields.h"
#include "wire/protocol.h"

namespace tessera::cli {
using client::ApiClient;
using client::IntegerField;
using client::Json;
using client::TextField;

Result<int> ShowVersion(const Common& common) {
  const auto answer = ApiClient(common.RunDirectory()).Get("/healthz");
  const std::string daemon = answer ? TextField(*answer, "version") : "";
  const std::string protocol = answer ? std::to_string(IntegerField(*answer, "protocol")) : "";
  if (common.json) {
    Json json = {{"version", TESSERA_VERSION}, {"protocol", wire::kProtocolVersion}, {"daemon", nullptr}};
    if (answer) json["daemon"] = *answer;
    PrintJson(json);
  } else {
    Print("tessera  " TESSERA_VERSION " (protocol " + std::to_string(wire::kProtocolVersion) + ")\n");
    Print(answer ? "tesserad " + daemon + " (protocol " + protocol + ")\n" : "tesserad is not running\n");
  }
  return 0;
}

}  // namespace tessera::cli
