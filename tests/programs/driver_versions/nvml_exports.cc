// What libnvidia-ml.so.1 of one version of the driver exports, beside what fake_nvml.cc answers: symbols.inc has all
// its exports, SYMBOL(name) for each. These answer NVML_ERROR_NOT_SUPPORTED.
#define SYMBOL(name)                                               \
  extern "C" [[gnu::weak, gnu::visibility("default")]] int name(); \
  int name() { return 3; }
#include "symbols.inc"
