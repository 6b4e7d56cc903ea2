#include "server/gpu/state_saver.h"

#include <chrono>

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
        std::lock_guard lock(mutex_);
        written_ = upto;
        advanced_.notify_all();
      },
      [this, upto] {
        Report(last_);
        if (changes_ != upto) Write();
      });
}

void StateSaver::Await() {
  const std::uint64_t wanted = changes_;
  std::unique_lock lock(mutex_);
  // The loop begins the next write when one has ended: after its end nobody does.
  while (written_ < wanted && loop_.Post([] {})) advanced_.wait_for(lock, std::chrono::milliseconds(100));
}

void StateSaver::Finish() {
  writing_.Wait();
  if (written_ != changes_ || !last_) Report(SaveState(path_, state_()));
  written_ = changes_;
}

void StateSaver::Report(const Result<void>& saved) {
  if (saved && failing_) log::Info("{} is written again", path_);
  if (!saved && !failing_) log::Warn("{}; vGPUs go on, but {}", saved.error().message, saved.error().hint);
  failing_ = !saved;
}

}  // namespace tessera::server
