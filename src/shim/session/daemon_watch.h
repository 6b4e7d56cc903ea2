// What becomes of the process when its daemon is gone, and when another one answers.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "base/fork_mutex.h"

namespace tessera::shim {

// How often a process looks for a daemon that is gone, and asks again for what it waits for.
inline constexpr Nanos kReconnectEvery = 200 * kMillisecond;

// A part of the process that holds something under a daemon. Never destroyed once the watch knows it.
class DaemonFollower {
 public:
  // The daemon is gone, and another one is about to be spoken to: nothing may be under way with the old one.
  virtual void Retreat() = 0;
  // A new daemon welcomed the process: tells it what is held. False: it does not take that; it counts as gone still.
  virtual bool Reattach() = 0;
  // All followers have attached to the new daemon.
  virtual void Reattached() = 0;
  // No daemon answered within the time of grace. `block`: wait until one does, else go on without one. Called again and
  // again until one does.
  virtual void GoOnAlone(bool block) = 0;

 protected:
  ~DaemonFollower() = default;

 private:
  friend class DaemonWatch;
  DaemonFollower* next_ = nullptr;
};

// Looks after the session when its daemon is gone, on whatever thread notices. One per process; any thread, but with no
// mutex held that a follower takes.
class DaemonWatch {
 public:
  static DaemonWatch& Instance();

  void Add(DaemonFollower& follower);
  // One try to get a lost session back, after another thread's. True: it stands.
  bool Reconnect();
  // Does nothing while the daemon is there. Else tries to reconnect, not more often than kReconnectEvery, and after the
  // time of grace has each follower go on alone. Returns at once while another thread does that.
  void Mind(Nanos now);

 private:
  DaemonWatch() = default;
  bool ReconnectLocked() TESSERA_REQUIRES(speaking_);
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (DaemonFollower* at = followers_; at; at = at->next_) visit(*at);
  }

  // Held by the thread that speaks with a new daemon for all. Taken before every mutex of the followers.
  ForkMutex speaking_;
  Nanos next_try_ TESSERA_GUARDED_BY(speaking_) = 0;
  std::atomic<DaemonFollower*> followers_{nullptr};  // only ever longer
};

}  // namespace tessera::shim
