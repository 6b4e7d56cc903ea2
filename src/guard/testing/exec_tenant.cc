// A program that a test executes behind the gate: asks for memory of argv[2] MiB on the driver's file argv[1], and
// exits with RM's status.
#include <cstdlib>

#include "guard/testing/tenant.h"

int main(int count, char** arguments) {
  if (count != 3) return 1;
  const tessera::guard::Rm rm{.file = std::atoi(arguments[1])};
  const auto status = rm.Memory(0x5c000010, std::strtoull(arguments[2], nullptr, 10) * tessera::guard::kMiB);
  return status < 0 ? 2 : static_cast<int>(status);
}
