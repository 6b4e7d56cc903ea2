#pragma once

#include "base/uncancelled.h"
#include "shim/device/current.h"

namespace tessera::shim {

// While one lives the calling thread counts as one that is inside of a call that may wait for the GPU. A program that
// was stopped, and of which every marker is reached, would wait there for good if nobody knew that it needs the GPU. A
// thread that were cancelled inside would be counted for good.
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
