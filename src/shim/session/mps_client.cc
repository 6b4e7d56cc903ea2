#include "shim/session/mps_client.h"

#include <unistd.h>

#include <string>

#include "base/clock.h"
#include "shim/load/real.h"
#include "shim/process/say.h"

namespace tessera::shim {

using namespace cuda;

namespace {

constexpr Nanos kUntilServer = 15 * kSecond;
constexpr unsigned kTryAgainUs = 50'000;

bool IsClient() {
  int count = 0, client = 0;
  if (REAL_AS(cuDeviceGetCount, int*)(&count) != CUDA_SUCCESS || count == 0) return true;  // there is no GPU to use
  CUdevice device = 0;
  if (REAL_AS(cuDeviceGet, CUdevice*, int)(&device, 0) != CUDA_SUCCESS) return false;
  return REAL_AS(cuDeviceGetAttribute, int*, int, CUdevice)(&client, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) ==
             CUDA_SUCCESS &&
         client != 0;
}

}  // namespace

CUresult InitInSpace(const wire::Welcome& terms, unsigned flags) {
  const std::string space(wire::TextOf(terms.space));
  CUresult result = CUDA_SUCCESS;
  for (const Nanos until = MonotonicNow() + kUntilServer;;) {
    result = REAL_AS(cuInit, unsigned)(flags);
    if (result != CUDA_ERROR_MPS_SERVER_NOT_READY || MonotonicNow() >= until) break;
    usleep(kTryAgainUs);
  }
  if (result != CUDA_SUCCESS) {
    Say("cannot enter space %s: the MPS server refuses the program (CUDA error %d); see 'tessera space show %s'",
        space.c_str(), static_cast<int>(result), space.c_str());
    return result;
  }
  if (IsClient()) return CUDA_SUCCESS;
  Say("the program is no client of the MPS server of space %s, so its SMs cannot be limited; see 'tessera doctor'",
      space.c_str());
  return CUDA_ERROR_NO_DEVICE;
}

}  // namespace tessera::shim
