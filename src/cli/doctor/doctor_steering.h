#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/doctor/doctor.h"
#include "cli/launch/common.h"
#include "client/json.h"

namespace tessera::cli {

// Checks whether programs can be steered from outside: whether their channels can be taken off the GPU, and their calls
// of the kernel driver be checked. A running daemon knows, and is asked. Without one the channel test runs, which
// freezes a program of its own. The kernel gate is tested here if the daemon does not report it.
void CheckSteering(std::vector<Finding>& findings, const Common& common, bool daemon);

// Adds findings about which limits hold, from the earlier findings.
void CheckEnforcement(std::vector<Finding>& findings);

// The daemon's findings, from GET /v1/doctor. A failure is a warning: programs can run without it.
std::vector<Finding> SteeringFindings(const client::Json& answer);

// Tests in a child process whether a program can be put behind the kernel gate. `install_filter` is
// guard::InstallFilter, except in tests.
Finding TryKernelGate(const std::function<Result<UniqueFd>()>& install_filter);

// Whether there can be spaces: FindMpsControl's answer.
Finding SpacesFinding(const Result<std::string>& program);

// The finding of `tessera-channel-test`, from its line of output and its exit status.
Finding ChannelFinding(const std::string& line, int status);

}  // namespace tessera::cli
