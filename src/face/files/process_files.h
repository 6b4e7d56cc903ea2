#pragma once

#include <sys/stat.h>

#include <span>
#include <string>
#include <string_view>

#include "server/daemon/control.h"

namespace tessera::face {

// One file of processes/<pid>/<gpu>/. Figures that GVM keeps for each process belong to its vGPU here.
struct ProcessFile {
  const char* name;
  mode_t mode;
  Result<std::string> (*read)(server::Control&, const server::ProcessReport&);
  Result<void> (*write)(server::Control&, const server::ProcessReport&, std::string_view value);  // null: only read
};

// In the order in which they are listed.
std::span<const ProcessFile> ProcessFiles();

// processes/list.
std::string ListProcesses(const std::vector<server::ProcessReport>& processes);

}  // namespace tessera::face
