#include "shim/order/stream_name.h"

#include <atomic>

#include "shim/load/current_context.h"

namespace tessera::shim {

using namespace cuda;

namespace {

std::atomic<std::uint64_t> last_number{0};
__attribute__((tls_model("initial-exec"))) __thread std::uint64_t number;

}  // namespace

std::uint64_t ThreadNumber() {
  if (number == 0) number = ++last_number;
  return number;
}

StreamName NameOf(CUstream stream, bool per_thread) {
  if (stream == nullptr) stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (stream == CU_STREAM_LEGACY) return {.context = CurrentContext(), .stream = stream};
  if (stream == CU_STREAM_PER_THREAD) return {CurrentContext(), stream, ThreadNumber()};
  return {.stream = stream};
}

}  // namespace tessera::shim
