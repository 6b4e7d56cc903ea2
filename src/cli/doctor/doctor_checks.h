#pragma once

#include "cli/doctor/doctor.h"
#include "cli/launch/common.h"

namespace tessera::cli {

// What the driver's version, "580.159.04", promises of `library`: before 555 it has no cuCtxRecordEvent.
Finding DriverFinding(const std::string& version, const std::string& library);

// One look each; nothing is changed. What cannot be known for lack of something else says so.
void CheckDriver(std::vector<Finding>& findings);                          // kernel module, NVML, GPUs, device nodes
void CheckSoftGpu(std::vector<Finding>& findings);                         // library, /dev/shm
void CheckPrograms(std::vector<Finding>& findings, const Common& common);  // a CUDA program works under the shim
void CheckRunDirectory(std::vector<Finding>& findings, const Common& common);
bool CheckDaemon(std::vector<Finding>& findings, const Common& common);  // true if one answers that fits

}  // namespace tessera::cli
