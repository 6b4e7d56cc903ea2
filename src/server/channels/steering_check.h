#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "channel/self_test/self_test.h"
#include "server/channels/availability.h"
#include "server/loop/background.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Sees whether channels can be steered with this driver, on each GPU: they are only after that was seen to work, and
// until then, and otherwise, gates do it. Tells the availability, and the log. Runs on the loop's thread, which it
// never blocks.
class SteeringCheck {
 public:
  // Both outlive the object.
  SteeringCheck(EventLoop& loop, Availability& availability) : availability_(availability), testing_(loop) {}

  // `gpus`: their UUIDs as text, in the order of their indices. `soft`: they are soft ones, which need no test. `done`
  // is called once: here where nothing has to be tested, else from the loop. Call it once.
  void Start(const std::vector<std::string>& gpus, bool soft, std::function<void()> done);

 private:
  void End(bool soft);

  Availability& availability_;
  std::vector<Result<channel::SelfTest>> tests_;  // belongs to testing_'s thread while there is one
  Background testing_;                            // last, because its thread uses the others
};

}  // namespace tessera::server
