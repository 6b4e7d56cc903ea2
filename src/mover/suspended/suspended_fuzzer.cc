// libFuzzer's entry: cmake -DTESSERA_FUZZ=ON with clang, then `suspended_fuzzer CORPUS_DIR`. The first byte says
// whether checksums are put right.
#include <cstdio>
#include <cstdlib>

#include "mover/suspended/suspended_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string fault = tessera::mover::RunSuspendedFile({data + 1, size - 1}, (data[0] & 1) != 0);
  if (!fault.empty()) {
    std::fprintf(stderr, "%s\n", fault.c_str());
    std::abort();
  }
  return 0;
}
