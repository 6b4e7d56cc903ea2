// libFuzzer's entry: cmake -DTESSERA_FUZZ=ON with clang, then `input_fuzzer CORPUS_DIR`.
#include <cstdio>
#include <cstdlib>

#include "plan/input/input_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (const std::string fault = tessera::plan::RunInput({data, size}); !fault.empty()) {
    std::fprintf(stderr, "%s\n", fault.c_str());
    std::abort();
  }
  return 0;
}
