// libFuzzer: any text at all must parse or be refused. Kernels are run by fuzz_test.cc.
#include <cstddef>
#include <cstdint>

#include "soft/ptx/ptx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)tessera::soft::ptx::Module::Parse({reinterpret_cast<const char*>(data), size});
  return 0;
}
