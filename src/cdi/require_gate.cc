// tessera-require-gate SOCKET: a hook of container runtimes (createRuntime) for vGPUs that are for containers behind
// the kernel gate only. It gets the container's state on its standard input, and fails if the container is not: the
// runtime then does not start it, and shows what is said here.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cdi/gate_check.h"

namespace {

int Complain(const std::string& text) {
  std::fprintf(stderr, "tessera: %s\n", text.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return Complain("usage: tessera-require-gate SOCKET < STATE");
  const std::string state{std::istreambuf_iterator<char>(std::cin), {}};
  const auto bundle = tessera::cdi::BundleIn(state);
  if (!bundle) return Complain(bundle.error().Text());
  std::ifstream file(*bundle + "/config.json");
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Complain("cannot read " + *bundle + "/config.json");
  const auto behind = tessera::cdi::CheckBehindGate(config, argv[1]);
  return behind ? 0 : Complain(behind.error().Text());
}
