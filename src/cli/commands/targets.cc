#include "cli/commands/targets.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <utility>

#include "cli/terminal/output.h"
#include "cli/vgpu/settings.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::Json;

namespace {

constexpr std::string_view kVgpuPrefix = "vgpu:";

Result<Json> Ask(const ApiClient& client, const std::string& target, const TargetRequest& request) {
  const auto path = TargetPath(target);
  if (!path) return std::unexpected(path.error());
  return client.Post(*path + "/" + request.verb, request.body);
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

Result<int> AskForTargets(const Common& common, const std::vector<std::string>& targets, const TargetRequest& request,
                          const TargetWait& wait) {
  const ApiClient client(common.RunDirectory());
  Json all = Json::array();
  std::vector<std::pair<std::string, Json>> begun;
  int status = 0;
  const auto fails = [&](const Error& error) {
    PrintError(error);
    status = 1;
  };
  for (const std::string& target : targets) {
    const auto answer = Ask(client, target, request);
    // Without a daemon the other targets would fail with the same message.
    if (!answer && answer.error().code == ECONNREFUSED) return std::unexpected(answer.error());
    if (!answer) {
      fails(answer.error());
    } else if (!request.begins.empty()) {
      begun.emplace_back(target, client::Field(*answer, request.begins.c_str()));
    }
  }
  for (const auto& [target, its] : begun) {
    for (const Json& each : its) all.push_back(each);
    if (auto done = wait(client, target, its); !done) fails(done.error());
  }
  if (common.json && !request.begins.empty()) PrintJson(Json{{request.begins, all}});
  return status;
}

}  // namespace tessera::cli
