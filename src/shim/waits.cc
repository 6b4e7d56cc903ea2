// Calls that may wait for the GPU though they submit nothing: code that is uploaded, say. A program that was stopped
// while its memory was brought out, and has nothing else to do, would wait there for good: nobody would know that it
// needs the GPU.
#include "shim/hook.h"
#include "shim/uncancelled.h"

namespace tessera::shim {
namespace {

// A thread that were cancelled inside would be counted for good.
class InCall {
 public:
  InCall() {
    const Gate* gate = ThreadGate();
    attachment_ = gate ? gate->attachment : CurrentAttachment();
    if (attachment_) attachment_->NoteCalls(1);
  }
  ~InCall() {
    if (attachment_) attachment_->NoteCalls(-1);
  }
  InCall(const InCall&) = delete;

 private:
  const Uncancelled uncancelled_;
  Attachment* attachment_;
};

using Word = std::uintptr_t;

}  // namespace
}  // namespace tessera::shim

// Arguments beyond those that a function has are whatever lies there, and are passed on unread.
#define TESSERA_WAITS(name)                                                                                       \
  TESSERA_HOOK name(tessera::shim::Word a, tessera::shim::Word b, tessera::shim::Word c, tessera::shim::Word d,   \
                    tessera::shim::Word e, tessera::shim::Word f, tessera::shim::Word g, tessera::shim::Word h) { \
    const tessera::shim::InCall in_call;                                                                          \
    return REAL(name)(a, b, c, d, e, f, g, h);                                                                    \
  }
#include "waits.inc"
#undef TESSERA_WAITS
