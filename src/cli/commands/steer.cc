#include "cli/commands/steer.h"

#include "cli/commands/targets.h"
#include "cli/terminal/output.h"
#include "client/api_client.h"

namespace tessera::cli {
using client::ApiClient;
using client::Json;

Result<int> Freeze(const Common& common, const std::vector<std::string>& targets) {
  return AskForTargets(common, targets, {.verb = "freeze"});
}

Result<int> Thaw(const Common& common, const std::vector<std::string>& targets) {
  return AskForTargets(common, targets, {.verb = "thaw"});
}

Result<int> Adopt(const Common& common, const std::string& pid, const std::string& vgpu) {
  const auto id = ParsePid(pid);
  if (!id) return std::unexpected(id.error());
  if (auto fits = CheckName(vgpu); !fits) return std::unexpected(fits.error());
  const auto process =
      ApiClient(common.RunDirectory()).Post("/v1/processes/" + std::to_string(*id) + "/adopt", Json{{"vgpu", vgpu}});
  if (!process) return std::unexpected(process.error());
  if (common.json) PrintJson(*process);
  return 0;
}

}  // namespace tessera::cli
