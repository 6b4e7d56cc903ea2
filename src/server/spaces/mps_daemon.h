#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "base/process/process_start.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"
#include "server/spaces/mps_commands.h"

namespace tessera::server {

// The control daemon of one space: starts it, or takes over the one that a tesserad before this one started, and starts
// it again when it ends by itself. It stays when this object goes, and so do its clients. Runs on the loop's thread.
class MpsDaemon {
 public:
  struct Host {
    std::function<void()> ended = [] {};   // by itself; another one is started after kPause
    std::function<void()> closed = [] {};  // Close is done; the object must not be destroyed inside this call
  };

  // `place.pipes` and `place.logs` are directories; they are made, and so is the file `record`, by which the next
  // tesserad finds the control daemon, and `record`.log, with what it says. Their folders exist. All that is given
  // outlives the object.
  MpsDaemon(EventLoop& loop, MpsPlace place, std::string record, Host host);
  MpsDaemon(const MpsDaemon&) = delete;

  // Errors: those of mkdir(2) and posix_spawn(3), with the path. Nothing runs then; it is tried again every kPause, for
  // as long as the object is there and not closed.
  Result<void> Open();
  // Ends it, with its servers and their clients: by a command, and by a signal if it does not obey within kPause.
  // Returns at once.
  void Close();

  pid_t Pid() const { return process_.pid; }  // 0: none runs
  const MpsPlace& Place() const { return place_; }

  static constexpr Nanos kPause = kSecond;  // between its end and the start of another one

 private:
  Result<void> Start();
  Result<void> Watch(ProcessName process);
  bool TakeOver();
  void OnEnd();
  void OnTimer();
  void CloseIfEnded();

  EventLoop& loop_;
  const MpsPlace place_;
  const std::string record_;
  const Host host_;
  ProcessName process_;
  UniqueFd pidfd_;
  EventLoop::Watch watch_;
  EventLoop::Timer again_;
  bool closing_ = false, closed_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // names this object to what it has posted
  Background quitting_;
};

}  // namespace tessera::server
