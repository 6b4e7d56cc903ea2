#include "shim/session/daemon_watch.h"

#include <algorithm>
#include <vector>

#include "shim/session/session.h"

namespace tessera::shim {

DaemonWatch& DaemonWatch::Instance() {
  static auto* watch = new DaemonWatch;  // outlives everything: threads may still use it at exit
  return *watch;
}

void DaemonWatch::Add(DaemonFollower& follower) {
  follower.next_ = followers_;
  while (!followers_.compare_exchange_weak(follower.next_, &follower)) continue;
}

bool DaemonWatch::Reconnect() {
  const MutexLock lock(speaking_);
  return !Session::Instance().Lost() || ReconnectLocked();
}

bool DaemonWatch::ReconnectLocked() {
  ForEach([](DaemonFollower& follower) { follower.Retreat(); });
  const bool stands = Session::Instance().Reconnect([this] {
    // Each is asked once: what one of them tells the new daemon may change the answer of another.
    std::vector<DaemonFollower*> unsafe, safe;
    ForEach([&](DaemonFollower& follower) { (follower.Safe() ? safe : unsafe).push_back(&follower); });
    const auto attaches = [](DaemonFollower* follower) { return follower->Reattach(); };
    if (!std::ranges::all_of(unsafe, attaches) || !std::ranges::all_of(safe, attaches)) return false;
    back_since_ = MonotonicNow();  // before the session no longer counts as lost
    return true;
  });
  if (!stands) return false;
  ForEach([](DaemonFollower& follower) { follower.Reattached(); });
  return true;
}

void DaemonWatch::Mind(Nanos now) {
  if (!Session::Instance().Lost() || !speaking_.TryLock()) return;
  // Another thread may have reconnected since the first look.
  if (Session::Instance().Lost()) MindLocked(now);
  speaking_.Unlock();
}

void DaemonWatch::MindLocked(Nanos now) {
  Session& session = Session::Instance();
  if (now >= next_try_) {
    next_try_ = now + kReconnectEvery;
    if (ReconnectLocked()) return;
  }
  if (now - session.LostSince() >= session.Grace())
    ForEach([&](DaemonFollower& follower) { follower.GoOnAlone(session.BlockOnLoss()); });
}

}  // namespace tessera::shim
