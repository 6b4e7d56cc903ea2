#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace tessera::guard {

// Limiter for messages about refusals: a hostile program can cause a hundred thousand a second, and each would be a
// line of the log. Each program gets a few lines a second; further refusals are counted. Pure; one thread.
class Refusals {
 public:
  static constexpr unsigned kMostPerSecond = 5;

  // Refusals of a program that got no line. `process` is named in the program's last line.
  struct LeftOut {
    pid_t process = 0;
    std::uint64_t count = 0;
    bool operator==(const LeftOut&) const = default;
  };

  // Notes a refusal of the program behind `tree`. Returns where to store the process that its line names; null if it
  // gets no line. The pointer is valid until the next call.
  pid_t* Admit(std::uint64_t tree, Nanos now);

  // Takes the counts of programs whose second is over. Until then they get no more lines.
  std::vector<LeftOut> TakeDue(Nanos now);
  // When TakeDue has something; kNever.
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
