#pragma once

#include "base/uncancelled.h"
#include "shim/device/current.h"

namespace tessera::shim {

// A guard: while it lives, the calling thread counts as inside a call that may wait for the GPU. A stopped program
// whose markers are all reached could wait in such a call for good, so the daemon must know that it needs the GPU. The
// thread cannot be cancelled meanwhile, or it would be counted for good.
class InCall {
 public:
  InCall() {
    const Gate* gate = ThreadGate();
    if (gate) {
      keeper_ = gate->keeper;
    } else if (Attachment* attachment = CurrentAttachment()) {
      keeper_ = &attachment->Gates();
    }
    if (keeper_) keeper_->Calls().Add(1);
  }
  ~InCall() {
    if (keeper_) keeper_->Calls().Add(-1);
  }
  InCall(const InCall&) = delete;

 private:
  const Uncancelled uncancelled_;
  GateKeeper* keeper_ = nullptr;
};

}  // namespace tessera::shim
