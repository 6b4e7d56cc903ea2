#include "shim/gate/end_watch.h"

#include <unistd.h>

#include "shim/gate/capture.h"
#include "shim/load/real.h"
#include "shim/process/thread.h"

namespace tessera::shim {

using namespace cuda;

namespace {

constexpr unsigned kStepUs = 100;
constexpr int kEnterSteps = 20;  // in this time a thread that is about to call the driver has done it
constexpr int kStopSteps = 500;  // so long the process's end waits for a wait

}  // namespace

void EndWatch::Ask(CUcontext context, std::int64_t count) {
  context_ = context;
  count_ = count;
  ++asked_;
  if (!started_) started_ = StartThread("tessera-ends", Main, this) == 0;
  if (!started_) return Answer(asked_, kNone);  // the next question tries again
  asked_.notify_one();
}

void* EndWatch::Main(void* self) {
  auto& watch = *static_cast<EndWatch*>(self);
  for (std::uint32_t question = 0;;) {
    watch.asked_.wait(question);
    question = watch.asked_;
    const std::int64_t count = watch.count_;  // before the wait: another question may come meanwhile
    watch.Answer(question, watch.Wait() ? count : kNone);
  }
}

void EndWatch::Answer(std::uint32_t question, std::int64_t ended) {
  ended_ = ended;
  done_ = question;
  done_.notify_all();
}

// A capture is counted before Settle looks at `calling_`, and here it is the other way round: one of both sees the
// other.
bool EndWatch::Wait() {
  calling_ = true;
  bool ended = false;
  if (CUcontext context = context_; context && !stopped_ && !AnyCapture()) {
    const RelaxedCapture relaxed;
    REAL_AS(cuCtxSetCurrent, CUcontext)(context);
    // Any other error is the context's: its GPU does nothing any more.
    ended = REAL_AS(cuCtxSynchronize)() != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    REAL_AS(cuCtxSetCurrent, CUcontext)(nullptr);
  }
  calling_ = false;
  return ended;
}

void EndWatch::Await() const {
  for (std::uint32_t done = done_; done != asked_; done = done_) done_.wait(done);
}

void EndWatch::Settle() const {
  for (int i = 0; i < kEnterSteps && calling_; ++i) usleep(kStepUs);
}

void EndWatch::Reset() {
  if (started_) Ask(nullptr, kNone);
}

void EndWatch::Stop() {
  stopped_ = true;
  for (int i = 0; i < kStopSteps && calling_; ++i) usleep(kStepUs);
}

}  // namespace tessera::shim
