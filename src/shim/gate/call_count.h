#pragma once

#include <atomic>
#include <cstdint>

#include "shim/session/followed_page.h"

namespace tessera::shim {

// The number of threads inside calls that may wait for the GPU though they submit nothing; the daemon reads it in the
// page. Takes no lock, because it changes with each copy. Any thread.
class CallCount {
 public:
  explicit CallCount(FollowedPage& page) : page_(page) {}

  // Before (1) and after (-1) such a call.
  void Add(int change) {
    count_ += static_cast<std::uint32_t>(change);
    Report();
  }

  // Writes the number to the page. If several threads do, the last one checks after its store that the number is right.
  void Report() {
    for (std::uint32_t now = count_;; now = count_) {
      page_->calls = now;
      if (count_ == now) return;
    }
  }

  // The threads that were inside are the parent's.
  void AbandonAfterFork() { count_ = 0; }

 private:
  FollowedPage& page_;
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace tessera::shim
