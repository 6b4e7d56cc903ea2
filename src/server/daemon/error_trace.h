#ifndef TESSERA_SERVER_DAEMON_ERROR_TRACE_H_
#define TESSERA_SERVER_DAEMON_ERROR_TRACE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// The trace that led to an error of the log, and up to a second after it, for 'tessera trace --last'. Of the loop's
// thread.
class ErrorTrace {
 public:
  ErrorTrace(EventLoop& loop, std::string run_dir) : run_dir_(std::move(run_dir)), saving_(loop) {}

  // Saves it in the run directory, on a thread of its own, if the log has a new error. Shall be called each second.
  void SaveIfWrong(Nanos now);

 private:
  const std::string run_dir_;
  std::uint64_t errors_seen_ = 0;  // of the log, until the trace was last saved
  Nanos saved_at_ = 0;             // 0: never
  Background saving_;
};

}  // namespace tessera::server

#endif  // TESSERA_SERVER_DAEMON_ERROR_TRACE_H_
