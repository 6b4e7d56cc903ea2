#include "soft/device/api_gate.h"

#include <signal.h>

#include <atomic>
#include <cstdio>

#include "base/mutex.h"
#include "soft/device/device.h"

namespace tessera::soft {
namespace {

// Never destroyed: programs call the driver until they are gone.
struct Door {
  std::atomic<int> inside = 0;
  std::atomic<bool> closed = false, saved = false;
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

ApiCall::ApiCall(Kind kind) : state_(DriverState()) {
  if (state_ != cuda::CUDA_SUCCESS) return;
  counted_ = true;
  if (depth++ > 0) return;
  Door& door = Door::Get();
  for (;;) {
    // Who closes the door writes `closed` and then reads the count: it sees this call, or this call sees `closed`.
    ++door.inside;
    if (!door.closed) break;
    --door.inside;
    if (kind == Kind::kReadsMemory && door.saved) {
      std::fputs("soft GPU: a query or a wait while the process is saved: the driver reads memory that is gone\n",
                 stderr);
      raise(SIGSEGV);
    }
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

void ApiCall::SetSaved(bool saved) { Door::Get().saved = saved; }

int ApiCall::Inside() { return Door::Get().inside; }

}  // namespace tessera::soft
