#pragma once

#include <set>
#include <string>

#include "cli/doctor/doctor.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// The finding for a driver's version, such as "580.159.04", whose library is `library`. Before 555 the driver has no
// cuCtxRecordEvent.
Finding DriverFinding(const std::string& version, const std::string& library);

// The finding for the functions of a driver that the shim does not know (exports.h).
Finding FunctionsFinding(const std::set<std::string>& unknown);

// The checks. None changes anything; a check that needs something that is missing says so.
void CheckDriver(std::vector<Finding>& findings);                          // kernel module, NVML, GPUs, device nodes
void CheckSoftGpu(std::vector<Finding>& findings);                         // library, /dev/shm
void CheckPrograms(std::vector<Finding>& findings, const Common& common);  // a CUDA program works under the shim
void CheckRunDirectory(std::vector<Finding>& findings, const Common& common);
bool CheckDaemon(std::vector<Finding>& findings, const Common& common);  // true if one answers that fits

}  // namespace tessera::cli
