#pragma once

#include "base/clock.h"
#include "server/checkpoint/program_parts.h"
#include "server/record/log.h"

namespace tessera::server {

// Waits, once the driver has saved a program, until what it left in place has gone on to host memory.
class RelocationWait {
 public:
  void Begin(Nanos now) {
    waits_ = true;
    since_ = asked_at_ = now;
  }
  void End() { waits_ = false; }
  bool Waits() const { return waits_; }
  // Whether it is to be waited for still. Another mover does not know that it should go, so that is said again now and
  // then. After `most` the rest stays: there is no host memory for it.
  bool Goes(pid_t pid, const ProgramParts& parts, Nanos most, Nanos now) {
    constexpr Nanos kAskEvery = kSecond;
    const bool asks = now - asked_at_ > kAskEvery;
    if (asks) asked_at_ = now;
    const bool goes = parts.Relocates(asks);
    if (goes && now - since_ >= most)
      log::Warn("process {}: some of its memory stays on the GPU: there is no host memory for it", pid);
    return goes && now - since_ < most;
  }

 private:
  bool waits_ = false;
  Nanos since_ = 0, asked_at_ = 0;
};

}  // namespace tessera::server
