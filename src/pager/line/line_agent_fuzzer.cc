// libFuzzer's entry: cmake -DTESSERA_FUZZ=ON with clang, then `line_agent_fuzzer CORPUS_DIR`.
#include <cstdio>
#include <cstdlib>

#include "pager/line/line_agent_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string wrong = tessera::pager::RunAgentScript({data, size});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
