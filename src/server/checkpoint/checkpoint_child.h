#pragma once

#include <functional>

#include "server/checkpoint/checkpointer.h"

namespace tessera::server {

// A process that makes checkpoint calls, and the talk with it. When the object ends, so does the process, after the
// call that it is in. On the loop's thread.
class CheckpointChild {
 public:
  // `on_answer` gets what it says, and nullptr, once, when it has ended or has said what it must not. It must not
  // destroy the object then and there. The loop outlives the object.
  CheckpointChild(EventLoop& loop, CheckpointProcess process,
                  std::function<void(const wire::CheckpointAnswer*)> on_answer);
  ~CheckpointChild();
  CheckpointChild(const CheckpointChild&) = delete;

  // Begins to read. An error of the loop.
  Result<void> Watch();
  // False: it cannot be sent, because the process has ended. It reads each request before the next one comes, so there
  // is room in the socket.
  bool Send(const wire::CheckpointRequest& request);
  // Ends it in the middle of a call. What is in the driver may take a while to end.
  void Kill();
  pid_t Pid() const { return process_.pid; }

 private:
  void Read();

  EventLoop& loop_;
  CheckpointProcess process_;
  std::function<void(const wire::CheckpointAnswer*)> on_answer_;
  EventLoop::Watch watch_;
  bool gone_ = false;
};

// Starts lib/tessera/tessera-checkpoint. Errors: those of Spawn and socketpair(2).
Result<CheckpointProcess> SpawnCheckpointProcess(bool soft);

}  // namespace tessera::server
