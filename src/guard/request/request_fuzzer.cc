// libFuzzer's entry: cmake -DTESSERA_FUZZ=ON with clang, then `request_fuzzer CORPUS_DIR`.
#include <cstdlib>

#include "guard/request/request_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (!tessera::guard::RunRequest({data, size})) std::abort();
  return 0;
}
