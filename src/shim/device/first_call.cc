#include "shim/device/first_call.h"

#include <errno.h>
#include <time.h>

#include <atomic>

#include "base/fork_mutex.h"
#include "shim/device/attachment.h"
#include "shim/load/call_watch.h"
#include "shim/session/session.h"

namespace tessera::shim {
namespace {

// A thread that was on its way to the driver when the watch began is there after this time.
constexpr timespec kOnTheWay{.tv_sec = 0, .tv_nsec = 5 * kMillisecond};
// Time between two looks of a thread that waits: the page that it waits at may be an earlier daemon's.
constexpr Nanos kLookBack = 100 * kMillisecond;

ForkMutex mutex;  // taken before Session's
bool watches TESSERA_GUARDED_BY(mutex) = false;
std::atomic<bool> came{false};

// On the thread that calls, with whatever mutexes it holds. While the program is away it waits here: not all calls do
// in the driver. A query of an event reads memory that is gone then (docs/hardware-log.md, 2026-11-26).
void Seen() {
  const int before = errno;
  for (;;) {
    const Attachment* away = nullptr;
    std::uint32_t bell = 0;
    Attachment::ForEach([&](const Attachment& each) {
      const std::uint32_t rung = each.Followed().Bell();
      if (each.Page()->away.load() == 0) return;
      away = &each;
      bell = rung;
    });
    if (!away) break;
    // It may have been back, and be away again.
    if (!came.exchange(true)) Attachment::ForEach([](const Attachment& each) { FollowedPage::Ring(each.Page()); });
    away->Followed().WaitForRing(bell, kLookBack);
  }
  errno = before;
}

void Report(const Attachment& attachment, wire::FirstCall word) {
  if (attachment.Page()->first_call.exchange(word) == word || word != wire::FirstCall::kCame) return;
  // If this fails, the next daemon's page is told.
  Session::Instance().Tell(wire::Make(wire::Called{}, attachment.Gpu()));
}

}  // namespace

bool MindFirstCall() {
  const MutexLock lock(mutex);  // an older look at the pages must not undo what a later one did
  bool any = false, all = true, quiet = true;
  Attachment::ForEach([&](const Attachment& each) {
    const bool away = each.Page()->away.load() != 0;
    any |= away;
    all &= away;
    quiet &= each.Page()->own_calls.load() == 0;  // they are no calls of the program's
  });
  if (!any && !watches) return true;
  if (watches && !all) {
    watches = false;  // said first: the daemon must not believe that calls are watched when they are not
    Attachment::ForEach([](const Attachment& each) { Report(each, wire::FirstCall::kUnseen); });
    WatchCalls(nullptr);
  } else if (!watches && all && quiet) {
    came = false;
    WatchCalls(Seen);
    nanosleep(&kOnTheWay, nullptr);
    watches = true;
  }
  const bool called = came.load();
  const auto word = !watches ? wire::FirstCall::kUnseen : called ? wire::FirstCall::kCame : wire::FirstCall::kAwaited;
  Attachment::ForEach([&](const Attachment& each) { Report(each, word); });
  return watches || !any;
}

}  // namespace tessera::shim
