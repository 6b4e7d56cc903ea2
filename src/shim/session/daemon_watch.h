// Handles the loss of the daemon, and the arrival of another one.
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
  // The daemon is gone, and this process is about to speak to another one: ends all that is under way with the old one.
  virtual void Retreat() = 0;
  // A new daemon has welcomed the process: tells it what this part holds. False: it does not accept that, and counts as
  // gone.
  virtual bool Reattach() = 0;
  // Whether the program may use all memory that this part holds. A daemon hears first of what it may not use, before it
  // lets work on other GPUs go on that could reach that.
  virtual bool Safe() const { return true; }
  // All followers have attached to the new daemon.
  virtual void Reattached() = 0;
  // No daemon has answered within the time of grace: waits until one does (`block`), or goes on without one. Called
  // again and again until a daemon answers.
  virtual void GoOnAlone(bool block) = 0;

 protected:
  ~DaemonFollower() = default;

 private:
  friend class DaemonWatch;
  DaemonFollower* next_ = nullptr;
};

// The watch over the session: when its daemon is gone, the thread that notices reconnects. One per process. Any thread
// that holds no mutex which a follower takes.
class DaemonWatch {
 public:
  static DaemonWatch& Instance();

  void Add(DaemonFollower& follower);
  // Tries once to reconnect if the session is lost; first waits for another thread that tries. True: the session
  // stands.
  bool Reconnect();
  // Does nothing while the daemon is there. Else tries to reconnect, not more often than kReconnectEvery, and after the
  // time of grace has each follower go on alone. Returns at once while another thread does that.
  void Mind(Nanos now);
  // When another daemon last welcomed the process (CLOCK_MONOTONIC); 0: never. Any thread.
  Nanos BackSince() const { return back_since_; }

 private:
  DaemonWatch() = default;
  bool ReconnectLocked() TESSERA_REQUIRES(speaking_);
  void MindLocked(Nanos now) TESSERA_REQUIRES(speaking_);
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (DaemonFollower* at = followers_; at; at = at->next_) visit(*at);
  }

  // Held by the thread that speaks with a new daemon for all. Taken before every mutex of the followers.
  ForkMutex speaking_;
  Nanos next_try_ TESSERA_GUARDED_BY(speaking_) = 0;
  std::atomic<Nanos> back_since_{0};
  std::atomic<DaemonFollower*> followers_{nullptr};  // it only grows
};

}  // namespace tessera::shim
