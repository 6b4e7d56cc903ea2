#include "base/install/mps_program.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "base/install/installation.h"

namespace tessera {
namespace {

constexpr const char* kProgram = "nvidia-cuda-mps-control";
// A service's PATH may be short.
constexpr const char* kPlaces = "/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/opt/nvidia/bin";

}  // namespace

Result<std::string> FindMpsControl(bool soft) {
  if (soft) {
    std::string stand_in = Installation::Find().Libraries() + "/soft/tessera-soft-mps-control";
    if (access(stand_in.c_str(), X_OK) == 0) return stand_in;
    return Fail(ENOENT, stand_in + " is missing", "install Tessera again");
  }
  const char* path = getenv("PATH");
  std::istringstream folders(std::string(path ? path : "") + ":" + kPlaces);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string program = folder + "/" + kProgram;
    if (folder.starts_with('/') && access(program.c_str(), X_OK) == 0) return program;
  }
  return Fail(ENOENT, std::string("MPS is not installed: there is no ") + kProgram,
              "install the part of NVIDIA's driver that has it");
}

}  // namespace tessera
