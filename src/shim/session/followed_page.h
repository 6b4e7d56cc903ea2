// The page in which the daemon writes its orders for one GPU, and this process its reports.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/fork_mutex.h"
#include "base/unique_fd.h"
#include "wire/page.h"

namespace tessera::shim {

// The page that the gates and accounts of a GPU follow: the daemon's, or one of this process's own while no daemon
// gives orders. A page that was followed once stays mapped, because a thread may be looking at it. Any thread.
class FollowedPage {
 public:
  FollowedPage() = default;
  FollowedPage(const FollowedPage&) = delete;

  // Maps a page that the daemon sent. Null, with a line on stderr, if it cannot be mapped or has another layout.
  static wire::Page* Map(const UniqueFd& fd);

  wire::Page* Get() const { return page_.load(std::memory_order_acquire); }
  wire::Page* operator->() const { return Get(); }
  // The GPU's number, as the daemon that sent the page counts.
  std::uint32_t Gpu() const { return gpu_.load(std::memory_order_relaxed); }

  // Guards which page is followed, and with it all that is taken from its credits or given back to them: a new daemon
  // is told exactly what was taken. It is held for a round trip with the daemon, but not while a thread waits for
  // memory. Taken after GateKeeper's mutex, and before those of Session and RoomAccount's report.
  ForkMutex holding;

  // Follows a daemon's page from now on.
  void Follow(wire::Page* page, std::uint32_t gpu) TESSERA_REQUIRES(holding);
  // Follows the process's own page, which says of memory what the daemon's said last. `returned`: the sum of the Return
  // messages so far. `block`: its gate is closed for good, else open for good.
  void FollowOwn(std::uint64_t returned, bool block) TESSERA_REQUIRES(holding);
  bool FollowsOwn() const { return Get() == &own_; }
  // Whether the vGPU was removed by force, as a daemon's page said; a line on stderr says so once. For good: whatever
  // the next page says, the program was promised no more of the GPU.
  bool Removed();

  // The doorbell of a page is a futex that the daemon rings, too.
  static void Ring(wire::Page* page);
  void Ring() { Ring(Get()); }
  std::uint32_t Bell() const { return Get()->doorbell.load(std::memory_order_acquire); }
  // Returns when the doorbell no longer has the value `seen`, or after `timeout`, or without cause.
  void WaitForRing(std::uint32_t seen, Nanos timeout) const;

  // The process ends: opens the gate of its own page, so that no thread waits there.
  void OpenOwn();
  // In a forked child: the daemon's page is the parent's.
  void AbandonAfterFork() { page_ = &own_; }

 private:
  std::atomic<wire::Page*> page_{nullptr};
  std::atomic<std::uint32_t> gpu_{0};
  std::atomic<bool> removed_{false};
  wire::Page own_;
};

// A thread of Tessera's calls the driver by itself as long as the object exists. False: it must not call it now, as the
// program is away from its GPU (wire::Page::away).
class OwnCall {
 public:
  explicit OwnCall(const FollowedPage& page) : page_(page.Get()) {
    page_->own_calls.fetch_add(1);
    may_ = page_->away.load() == 0;
    if (!may_) page_->own_calls.fetch_sub(1);
  }
  OwnCall(const OwnCall&) = delete;
  ~OwnCall() {
    if (may_) page_->own_calls.fetch_sub(1);
  }

  explicit operator bool() const { return may_; }

 private:
  wire::Page* const page_;
  bool may_;
};

}  // namespace tessera::shim
