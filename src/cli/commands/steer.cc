#include "cli/commands/steer.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "cli/terminal/output.h"
#include "cli/vgpu/settings.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::Json;

namespace {

constexpr std::string_view kVgpuPrefix = "vgpu:";

Result<void> Tell(const ApiClient& client, const std::string& target, const char* verb) {
  const auto path = TargetPath(target);
  if (!path) return std::unexpected(path.error());
  const auto done = client.Post(*path + "/" + verb, Json::object());
  if (!done) return std::unexpected(done.error());
  return {};
}

Result<int> TellAll(const Common& common, const std::vector<std::string>& targets, const char* verb) {
  const ApiClient client(common.RunDirectory());
  int status = 0;
  for (const std::string& target : targets) {
    const auto told = Tell(client, target, verb);
    if (told) continue;
    // Without a daemon the other targets would fail with the same message.
    if (told.error().code == ECONNREFUSED) return std::unexpected(told.error());
    PrintError(told.error());
    status = 1;
  }
  return status;
}

}  // namespace

Result<int> ParsePid(const std::string& text) {
  int pid = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (status == std::errc() && end == text.data() + text.size() && pid > 0) return pid;
  return Fail(EINVAL, "invalid process ID '" + text + "'", "see 'tessera ps'");
}

Result<std::string> TargetPath(const std::string& word) {
  const bool prefixed = word.starts_with(kVgpuPrefix);
  const bool digits = !word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c); });
  if (digits) {
    const auto pid = ParsePid(word);
    if (!pid) return Fail(ERANGE, pid.error().message, "write vgpu:" + word + " for a vGPU of that name");
    return "/v1/processes/" + std::to_string(*pid);
  }
  const std::string name = prefixed ? word.substr(kVgpuPrefix.size()) : word;
  if (auto fits = CheckName(name); !fits) return std::unexpected(fits.error());
  return "/v1/vgpus/" + name;
}

Result<int> Freeze(const Common& common, const std::vector<std::string>& targets) {
  return TellAll(common, targets, "freeze");
}

Result<int> Thaw(const Common& common, const std::vector<std::string>& targets) {
  return TellAll(common, targets, "thaw");
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
