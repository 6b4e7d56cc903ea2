#include "soft/module/jit_options.h"

#include <algorithm>
#include <cstring>

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

void** JitOptions::Find(CUjit_option option) const {
  for (unsigned i = 0; i < count_; ++i) {
    if (options_[i] == option) return values_ + i;
  }
  return nullptr;
}

void JitOptions::FillLog(CUjit_option buffer, CUjit_option size, const std::string& log) const {
  void** const text = Find(buffer);
  void** const bytes = Find(size);  // a number in the place of a pointer, in and out
  if (bytes == nullptr) return;
  const auto room = reinterpret_cast<std::size_t>(*bytes);
  std::size_t filled = 0;
  if (text != nullptr && *text != nullptr && room != 0) {
    filled = std::min(log.size(), room - 1);
    std::memcpy(*text, log.data(), filled);
    static_cast<char*>(*text)[filled] = '\0';
  }
  *bytes = reinterpret_cast<void*>(filled);
}

void JitOptions::Answer(const std::string& log) const {
  FillLog(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, log);
  FillLog(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
  if (void** const wall_time = Find(CU_JIT_WALL_TIME)) {
    const float milliseconds = 0;
    std::memcpy(static_cast<void*>(wall_time), &milliseconds,
                sizeof milliseconds);  // a number in the place of a pointer
  }
}

}  // namespace tessera::soft
