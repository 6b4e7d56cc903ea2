#include "shim/device/pacer.h"

#include <sys/prctl.h>

#include <algorithm>

#include "shim/device/first_call.h"
#include "shim/device/reserved_sms.h"
#include "shim/load/real.h"
#include "shim/memory/paging.h"
#include "shim/process/say.h"
#include "shim/process/thread.h"
#include "shim/session/daemon_watch.h"
#include "shim/session/session.h"
#include "shim/use/graph_memory.h"

namespace tessera::shim {
namespace {

// The shortest time between two looks at the daemon and at hot memory.
constexpr Nanos kLookEvery = 5 * kMillisecond;
// The time between two looks of a program that is away at its daemon, and whether it is back.
constexpr Nanos kLookAway = 100 * kMillisecond;
// A program that frees in the order of a stream often allocates in it again soon, and then needs no driver call. What
// it leaves alone for this long is for others.
constexpr Nanos kQuiet = kSecond;

}  // namespace

void Pacer::Start() {
  const int failed = StartThread("tessera-pacer", Main, this);
  if (failed)
    Say("cannot start a thread (error %d): this program keeps the GPU's token until the daemon takes it away", failed);
}

void* Pacer::Main(void* self) {
  static_cast<Pacer*>(self)->Run();
  return nullptr;
}

void Pacer::Run() {
  prctl(PR_SET_TIMERSLACK, 1);
  auto relaxed = cuda::CU_STREAM_CAPTURE_MODE_RELAXED;
  REAL_AS(cuThreadExchangeStreamCaptureMode, cuda::CUstreamCaptureMode*)(&relaxed);
  for (Nanos next_look = 0;;) {
    const std::uint32_t bell = page_.Bell();
    const bool watched = MindFirstCall();
    std::optional<Nanos> look = kLookAway;
    if (const OwnCall call(page_); call)
      look = gates_.Look();
    else if (!gates_.Runs())
      return;
    if (!look) return;
    Nanos wait = *look;
    if (!watched) wait = std::min(wait, kMillisecond);
    if (Session::Instance().LostSince() != 0) wait = std::min(wait, kReconnectEvery);
    page_.WaitForRing(bell, wait);
    if (const OwnCall call(page_); call) FollowReservedSms(page_, gates_, device_);
    const Nanos now = MonotonicNow();
    if (now < next_look) continue;
    next_look = now + kLookEvery;
    DaemonWatch::Instance().Mind(now);
    room_.ReportUse(now);
    const OwnCall call(page_);
    if (!call) continue;
    page_->pinned_by[static_cast<std::size_t>(wire::PinReason::kGraph)].store(GraphMemoryOf(device_),
                                                                              std::memory_order_relaxed);
    FreeQuiet(now);
  }
}

void Pacer::FreeQuiet(Nanos now) {
  if (now < next_quiet_ || (!PendingFrees::AnyInProcess() && !GraphBlocks::AnyDropped())) return;
  next_quiet_ = now + kQuiet;
  Paging::ForEach([&](Paging& paging) {
    if (paging.Device() == device_) paging.Ordered().FreeQuiet(gates_);
  });
}

}  // namespace tessera::shim
