#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sched/idle/idle_program.h"
#include "server/checkpoint/suspensions.h"
#include "server/config/config.h"
#include "server/gpu/gpu_server.h"
#include "server/loop/event_loop.h"
#include "server/migration/migrations.h"

namespace tessera::server {

// Has those programs suspended that are idle for as long as suspend.idle says, and brought back when they call. What an
// operator suspended stays. Runs on the loop's thread.
class IdleSuspension {
 public:
  using Gpus = std::vector<std::unique_ptr<GpuServer>>;

  // Begins with what the configuration says. The others outlive the object.
  IdleSuspension(EventLoop& loop, const Gpus& gpus, Suspensions& suspensions, const Migrations& migrations,
                 const Config& config);
  IdleSuspension(const IdleSuspension&) = delete;

  // Takes suspend.idle and suspend.idle_to, and looks from now on. Those that are suspended already come back with
  // their first call, whatever it says.
  void Configure(const Config& config, Nanos now);
  // A program that is away says that it has called its driver.
  void Called(pid_t pid, Nanos now);

 private:
  struct Known {
    sched::IdleRecord record;
    std::string refusal;  // the last one
  };

  std::map<pid_t, sched::IdleFacts> See() const;
  void Look(Nanos now);
  void Suspend(pid_t pid, Known& known, Nanos now);

  const Gpus& gpus_;
  Suspensions& suspensions_;
  const Migrations& migrations_;
  Nanos limit_ = 0;
  Suspensions::To to_ = Suspensions::To::kMemory;
  std::map<pid_t, Known> programs_;
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
