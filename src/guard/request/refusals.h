#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace tessera::guard {

// Which refusals people are told of: a hostile program makes a hundred thousand a second, and each would be a line of
// the log. Each program gets a few a second; the others are counted. Pure; one thread.
class Refusals {
 public:
  static constexpr unsigned kMostPerSecond = 5;

  // What was not told of a program since its last lines. `process` had the last of those.
  struct LeftOut {
    pid_t process = 0;
    std::uint64_t count = 0;
    bool operator==(const LeftOut&) const = default;
  };

  // A refusal of the program behind `tree`. Where to put the process that its line names; null: it gets no line. The
  // pointer is good until the next call.
  pid_t* Admit(std::uint64_t tree, Nanos now);

  // Of the programs whose second is over. Until it was taken, they get no more lines.
  std::vector<LeftOut> TakeDue(Nanos now);
  // When there is something to be taken; kNever.
  Nanos NextDue() const { return next_due_; }

  // The program has ended.
  std::optional<LeftOut> Forget(std::uint64_t tree);

 private:
  struct Program {
    Nanos until = 0;
    unsigned told = 0;
    LeftOut left_out;
  };

  void SetNextDue();

  std::unordered_map<std::uint64_t, Program> programs_;  // by tree
  Nanos next_due_ = kNever;
};

}  // namespace tessera::guard
