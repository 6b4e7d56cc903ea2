// The time for which each process used the soft GPUs so far, as they count it themselves: one line of JSON for each
// line on stdin. The judge of the tests about shares, which neither the daemon's nor the programs' own figures are.
#include <cstdio>
#include <iostream>

#include "base/clock.h"
#include "soft/shared/shared_state.h"

int main() {
  using namespace tessera;
  const auto state = soft::SharedState::Attach(soft::SharedState::DefaultPath(), "");
  if (!state) return std::fprintf(stderr, "soft_usage: %s\n", state.error().Text().c_str()), 1;
  for (std::string line; std::getline(std::cin, line);) {
    std::printf("{\"time_ns\": %lld, \"busy_ns\": {", static_cast<long long>(MonotonicNow()));
    const char* separator = "";
    for (int device = 0; device < (*state)->spec().devices; ++device) {
      for (const soft::ProcessUse& use : (*state)->Processes(device)) {
        std::printf("%s\"%d\": %lld", separator, use.pid, static_cast<long long>(use.busy));
        separator = ", ";
      }
    }
    std::puts("}}");
    std::fflush(stdout);
  }
  return 0;
}
