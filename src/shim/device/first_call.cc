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
constexpr timespec kOnTheWay{.tv_sec = 0, .tv_nsec = kMillisecond};

ForkMutex mutex;  // taken before Session's
bool watches TESSERA_GUARDED_BY(mutex) = false;
std::atomic<bool> came{false};

// On the thread that calls, with whatever mutexes it holds.
void Seen() {
  if (came.load(std::memory_order_relaxed) || came.exchange(true)) return;
  const int before = errno;
  Attachment::ForEach([](const Attachment& each) { FollowedPage::Ring(each.Page()); });
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
