// The driver's state in this process: what cuInit makes.
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "soft/device/context.h"
#include "soft/device/device.h"
#include "soft/device/pool.h"
#include "soft/mps/mps_client.h"
#include "soft/shared/soft_gpu.h"
#include "soft/shared/visible_devices.h"

namespace tessera::soft {
namespace {

using namespace cuda;

// Never destroyed: engines may still run when a program's exit handlers do.
struct Driver {
  std::once_flag once;
  std::atomic<CUresult> result = CUDA_ERROR_NOT_INITIALIZED;
  std::atomic<bool> forked = false;
  std::unique_ptr<SharedState> state;
  std::vector<std::unique_ptr<Device>> devices;
};

Driver& TheDriver() {
  static Driver& driver = *new Driver;
  return driver;
}

CUresult Start(Driver& driver) {
  const char* spec = std::getenv("TESSERA_SOFT");
  auto state = SharedState::Attach(SharedState::DefaultPath(), spec == nullptr ? "" : spec);
  if (!state) {
    // A CUresult says little; the person at the terminal gets the reason.
    std::fprintf(stderr, "tessera %s\n", state.error().Text().c_str());
    switch (state.error().code) {
      case ENOSPC:
        return CUDA_ERROR_OUT_OF_MEMORY;
      case EEXIST:
      case EPROTO:
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
      default:
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
  }
  if (const CUresult joined = JoinMps(**state); joined != CUDA_SUCCESS) return joined;
  driver.state = std::move(*state);
  std::vector<std::string> uuids;
  for (int i = 0; i < driver.state->spec().devices; ++i) uuids.push_back(FormatUuid(driver.state->Uuid(i)));
  for (const int shared_index : VisibleDevices(std::getenv("CUDA_VISIBLE_DEVICES"), uuids)) {
    const int index = static_cast<int>(driver.devices.size());
    driver.devices.push_back(std::make_unique<Device>(*driver.state, index, shared_index));
  }
  // A child has none of the threads that execute its parent's work.
  pthread_atfork(nullptr, nullptr, [] { TheDriver().forked = true; });
  return driver.devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

}  // namespace

CUresult InitDriver() {
  Driver& driver = TheDriver();
  if (driver.forked) return CUDA_ERROR_NOT_INITIALIZED;
  std::call_once(driver.once, [&] { driver.result = Start(driver); });
  return driver.result;
}

CUresult DriverState() {
  Driver& driver = TheDriver();
  return driver.forked ? CUDA_ERROR_NOT_INITIALIZED : driver.result.load();
}

void LoseDriver(CUresult error) { TheDriver().result = error; }

const std::vector<std::unique_ptr<Device>>& Devices() { return TheDriver().devices; }

Device* DeviceOf(CUdevice ordinal) {
  const auto& devices = Devices();
  const bool exists = ordinal >= 0 && static_cast<std::size_t>(ordinal) < devices.size();
  return exists ? devices[static_cast<std::size_t>(ordinal)].get() : nullptr;
}

}  // namespace tessera::soft
