#pragma once

#include <sys/stat.h>

#include <span>
#include <string>
#include <string_view>

#include "server/daemon/control.h"

namespace tessera::face {

// One file of vgpus/<name>/.
struct VGpuFile {
  const char* name;
  mode_t mode;
  std::string (*read)(const server::VGpuReport&);
  Result<void> (*write)(server::Control&, const server::VGpuReport&, std::string_view value);  // null: only read
  bool tells = false;  // poll(2) waits for a change of it
};

// In the order in which they are listed.
std::span<const VGpuFile> VGpuFiles();

}  // namespace tessera::face
