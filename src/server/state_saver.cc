#include "server/state_saver.h"

#include "server/log.h"

namespace tessera::server {

void StateSaver::Changed() {
  changed_ = true;
  if (writing_.Busy()) return;
  changed_ = false;
  writing_.Start([this, text = state_()] { last_ = SaveState(path_, text); },
                 [this] {
                   Report(last_);
                   if (changed_) Changed();
                 });
}

void StateSaver::Finish() {
  writing_.Wait();
  if (changed_ || !last_) Report(SaveState(path_, state_()));
  changed_ = false;
}

void StateSaver::Report(const Result<void>& saved) {
  if (saved && failing_) log::Info("{} is written again", path_);
  if (!saved && !failing_) log::Warn("{}; vGPUs go on, but {}", saved.error().message, saved.error().hint);
  failing_ = !saved;
}

}  // namespace tessera::server
