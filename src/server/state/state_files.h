#pragma once

#include <functional>
#include <string>

#include "server/loop/event_loop.h"
#include "server/state/state_saver.h"

namespace tessera::server {

// The two files by which a daemon leaves its vGPUs to the next one: state.json, of what goes with the boot, and
// vgpus.json, of what lasts. On the loop's thread, unless said otherwise.
class StateFiles {
 public:
  // What is to be in the file; called on the loop's thread.
  using Text = std::function<std::string()>;

  // The folders of state.json and vgpus.json. The loop outlives the object.
  StateFiles(EventLoop& loop, const std::string& of_boot, const std::string& lasting, Text of_boot_text,
             Text lasting_text)
      : lasting_text_(std::move(lasting_text)),
        of_boot_(loop, of_boot + "/state.json", std::move(of_boot_text)),
        lasting_(loop, lasting + "/vgpus.json", lasting_text_) {}

  // Something of state.json has changed.
  void OfBootChanged() { of_boot_.Changed(); }
  // Something of either file has changed. A vGPU of tessera run changes nothing in the file that lasts, which may be on
  // a slow disk: it is written only if its text is another.
  void Changed() {
    of_boot_.Changed();
    std::string text = lasting_text_();
    if (text == last_lasting_) return;
    last_lasting_ = std::move(text);
    lasting_.Changed();
  }
  // Any thread but the loop's. See StateSaver::Await.
  void Await() {
    of_boot_.Await();
    lasting_.Await();
  }
  // Whether what has changed until now is in the files: to be asked later.
  std::function<bool()> Written() {
    return [this, of_boot = of_boot_.Changes(), lasting = lasting_.Changes()] {
      return of_boot_.Wrote(of_boot) && lasting_.Wrote(lasting);
    };
  }
  // Writes what is not yet written, now; for the end.
  void Finish() {
    of_boot_.Finish();
    lasting_.Finish();
  }

 private:
  const Text lasting_text_;
  StateSaver of_boot_, lasting_;
  std::string last_lasting_;  // what is, or will be, in vgpus.json
};

}  // namespace tessera::server
