#include "base/process/process_start.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace tessera {

Result<std::uint64_t> ProcessStart(pid_t pid) {
  // With a dot: under qemu-user, a program that asks for its own by the plain name gets another start than others see.
  std::ifstream file("/proc/./" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');  // the name is field 2 and may contain anything
  if (name_end == line.npos) return Fail(ESRCH, "there is no process " + std::to_string(pid));
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  if (skipped.empty() || !(fields >> start))
    return Fail(ESRCH, "cannot read the start of process " + std::to_string(pid));
  return start;
}

}  // namespace tessera
