// CDI specification: what a container engine adds to a container that is given a vGPU.
// https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/install/installation.h"
#include "base/result.h"

namespace tessera::cdi {

// Fields stay in the order in which they are written, which is meant for people.
using Json = nlohmann::ordered_json;

// Paths in containers.
inline constexpr const char* kContainerLibraries = "/opt/tessera/lib";
inline constexpr const char* kContainerDriver = "/opt/tessera/driver";
inline constexpr const char* kContainerPreload = "/etc/ld.so.preload";  // the shims, for programs of glibc
inline constexpr const char* kContainerRunDir = "/run/tessera";  // where the shim of a root process looks by default

// A file or directory of the machine, mounted in the container.
struct Mount {
  std::string host, container;
  bool writable = false;
};

// A vGPU as a CDI device, for `--device tessera.dev/vgpu=NAME`; or several of as many GPUs, separated by commas.
struct Device {
  std::string vgpu;
  std::string key;  // of the vGPUs; empty: none
  std::string gpu_uuid;
  std::string name;                    // of the device; empty: the vGPU's
  std::vector<std::string> nodes;      // device nodes of its GPU, if the driver is included
  std::vector<std::string> variables;  // beside those of every vGPU: "NAME=VALUE"
};

// All that goes into a specification: the devices, and what all of them need.
struct SpecFacts {
  Installation installation;
  std::string run_dir;             // of the daemon
  bool soft = false;               // the soft driver takes the place of the real one
  std::string soft_name;           // $TESSERA_SOFT_NAME; empty: none
  std::vector<Mount> mounts;       // beside those of the libraries and the socket
  std::vector<std::string> nodes;  // of the driver as a whole
  bool kernel_gate = false;        // only containers behind the kernel gate may start with it
  bool driver = false;             // the driver's libraries are among the mounts, in kContainerDriver
  std::vector<Device> devices;
};

// Whether CDI allows the name of a vGPU as the name of a device: letters and digits at both ends, and dots, dashes and
// underscores between. EINVAL if not.
Result<void> CheckDeviceName(const std::string& name);

// The specification, in the lowest CDI version that its fields need, so that older engines accept it. Names must pass
// CheckDeviceName.
Json Spec(const SpecFacts& facts);

}  // namespace tessera::cdi
