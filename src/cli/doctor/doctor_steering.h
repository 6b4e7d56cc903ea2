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

// Whether programs can be steered from outside: their channels taken off the GPU, their calls of the kernel driver
// answered. A daemon that runs has tried, and is asked. Without one the channel test is run, which freezes a program of
// its own. Whether a program can be put behind the kernel gate is tried here, if the daemon does not say.
void CheckSteering(std::vector<Finding>& findings, const Common& common, bool daemon);

// What limits hold for, by what was found before.
void CheckEnforcement(std::vector<Finding>& findings);

// What the daemon found, as in GET /v1/doctor. What does not work is a warning: programs run without it.
std::vector<Finding> SteeringFindings(const client::Json& answer);

// Tries in a child process whether a program can be put behind the kernel gate. `install_filter` is
// guard::InstallFilter, but for tests.
Finding TryKernelGate(const std::function<Result<UniqueFd>()>& install_filter);

// What `tessera-channel-test` found, from its one line and its exit status.
Finding ChannelFinding(const std::string& line, int status);

}  // namespace tessera::cli
