#include "soft/device/api_gate.h"

#include <atomic>

#include "base/mutex.h"
#include "soft/device/device.h"

namespace tessera::soft {
namespace {

// Never destroyed: programs call the driver until they are gone.
struct Door {
  std::atomic<int> inside = 0;
  std::atomic<bool> closed = false;
  Mutex mutex;
  CondVar opened;

  static Door& Get() {
    static Door& door = *new Door;
    return door;
  }
  void AwaitOpen() {
    const MutexLock lock(mutex);
    while (closed) opened.Wait(mutex);
  }
};

thread_local int depth = 0;

}  // namespace

ApiCall::ApiCall() : state_(DriverState()) {
  if (state_ != cuda::CUDA_SUCCESS) return;
  counted_ = true;
  if (depth++ > 0) return;
  Door& door = Door::Get();
  for (;;) {
    // Who closes the door writes `closed` and then reads the count: it sees this call, or this call sees `closed`.
    ++door.inside;
    if (!door.closed) break;
    --door.inside;
    door.AwaitOpen();
  }
  state_ = DriverState();  // the process may have been lost behind the closed door
}

ApiCall::~ApiCall() {
  if (counted_ && --depth == 0) --Door::Get().inside;
}

void ApiCall::Close() { Door::Get().closed = true; }

void ApiCall::Open() {
  Door& door = Door::Get();
  const MutexLock lock(door.mutex);
  door.closed = false;
  door.opened.NotifyAll();
}

int ApiCall::Inside() { return Door::Get().inside; }

}  // namespace tessera::soft
