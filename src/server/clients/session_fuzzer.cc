// libFuzzer's entry: cmake -DTESSERA_FUZZ=ON with clang, then `session_fuzzer CORPUS_DIR`.

#include <cstdlib>

#include "server/clients/session_fuzz.h"
#include "server/record/log.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tessera::server::log::Silence(true);
  if (!tessera::server::RunScript({data, size})) std::abort();
  return 0;
}
