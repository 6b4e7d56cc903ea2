#pragma once

#include <functional>
#include <string>

#include "server/background.h"
#include "server/event_loop.h"
#include "server/state_file.h"

namespace tessera::server {

// Writes state.json after changes without holding up the loop. Many changes in a row make few writes.
class StateSaver {
 public:
  // `state` says what is to be written; called on the loop's thread.
  StateSaver(EventLoop& loop, std::string path, std::function<std::string()> state)
      : path_(std::move(path)), state_(std::move(state)), writing_(loop) {}

  // Something changed.
  void Changed();
  // Writes what is not yet written, now; for the end.
  void Finish();

 private:
  void Report(const Result<void>& saved);

  const std::string path_;
  const std::function<std::string()> state_;
  bool changed_ = false;
  bool failing_ = false;  // reported once, until it works again
  Result<void> last_;     // belongs to the writing thread while there is one
  Background writing_;    // last, because its thread uses the others
};

}  // namespace tessera::server
