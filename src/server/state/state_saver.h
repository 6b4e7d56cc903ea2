#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/state/state_file.h"

namespace tessera::server {

// Writes state.json after changes without holding up the loop. Many changes in a row make few writes.
class StateSaver {
 public:
  // `state` says what is to be written; called on the loop's thread.
  StateSaver(EventLoop& loop, std::string path, std::function<std::string()> state)
      : loop_(loop), path_(std::move(path)), state_(std::move(state)), writing_(loop) {}

  // Something changed.
  void Changed();
  // How many changes there were; and whether so many were written, or could not be, which the log says.
  std::uint64_t Changes() const { return changes_; }
  bool Wrote(std::uint64_t changes);
  // Any thread but the loop's. Waits until all changes that happened before the call were written, or could not be
  // (which the log says), or the loop has ended and Finish will write them.
  void Await();
  // Writes what is not yet written, now; for the end.
  void Finish();

 private:
  void Write();
  void Report(const Result<void>& saved);

  EventLoop& loop_;
  const std::string path_;
  const std::function<std::string()> state_;
  std::atomic<std::uint64_t> changes_ = 0;
  bool failing_ = false;  // reported once, until it works again
  Result<void> last_;     // belongs to the writing thread while there is one
  Mutex mutex_;
  CondVar advanced_;
  std::uint64_t written_ TESSERA_GUARDED_BY(mutex_) = 0;  // of changes_
  Background writing_;                                    // last, because its thread uses the others
};

}  // namespace tessera::server
