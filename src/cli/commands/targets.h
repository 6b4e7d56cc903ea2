#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/launch/common.h"
#include "client/api_client.h"
#include "client/json.h"

namespace tessera::cli {

// The API path for a target on the command line: digits name a process, anything else a vGPU. "vgpu:NAME" is for a vGPU
// whose name is digits. EINVAL or ERANGE for a word that can name neither.
Result<std::string> TargetPath(const std::string& word);

// Reads a process ID. EINVAL.
Result<int> ParsePid(const std::string& text);

// Request of a command for each of its targets: a POST to "`path of the target`/`verb`".
struct TargetRequest {
  std::string verb;
  client::Json body = client::Json::object();
  std::string begins;  // array in the answer: what has begun, and takes time; empty: the answer is the end
};
// Waits until what has begun for a target has ended.
using TargetWait =
    std::function<Result<void>(const client::ApiClient& client, const std::string& target, const client::Json& begun)>;

// Asks for all targets, and then waits for each; `wait` is needed if something begins, and all of that is printed with
// --json. Each failure is a line on stderr. 1 if there was one; an error if there is no daemon.
Result<int> AskForTargets(const Common& common, const std::vector<std::string>& targets, const TargetRequest& request,
                          const TargetWait& wait = {});

}  // namespace tessera::cli
