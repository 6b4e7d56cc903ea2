#include "server/state/state_saver.h"

#include <chrono>
#include <utility>

#include "server/record/log.h"

namespace tessera::server {

void StateSaver::Changed() {
  ++changes_;
  if (!writing_.Busy()) Write();
}

void StateSaver::Write() {
  const std::uint64_t upto = changes_;
  writing_.Start(
      [this, upto, text = state_()] {
        last_ = SaveState(path_, text);
        MutexLock lock(mutex_);
        written_ = upto;
        advanced_.NotifyAll();
      },
      [this, upto] {
        Report(last_);
        if (changes_ != upto) Write();
      });
}

bool StateSaver::Wrote(std::uint64_t changes) {
  MutexLock lock(mutex_);
  return written_ >= changes;
}

void StateSaver::Await() {
  const std::uint64_t wanted = changes_;
  MutexLock lock(mutex_);
  // Only the loop begins the next write: once the loop has ended none follows.
  while (written_ < wanted && loop_.Post([] {})) advanced_.WaitFor(mutex_, std::chrono::milliseconds(100));
}

void StateSaver::Finish() {
  writing_.Wait();
  const auto written = [this] {
    MutexLock lock(mutex_);
    return std::exchange(written_, changes_.load());
  };
  if (written() != changes_ || !last_) Report(SaveState(path_, state_()));
}

void StateSaver::Report(const Result<void>& saved) {
  if (saved && failing_) log::Info("{} can be written again", path_);
  if (!saved && !failing_) log::Warn("{}; vGPUs go on, but {}", saved.error().message, saved.error().hint);
  failing_ = !saved;
}

}  // namespace tessera::server
