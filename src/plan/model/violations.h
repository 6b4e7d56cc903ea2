#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tessera::plan {

// Acts of a scheduler that must never happen, each with its time. The first one ends a simulation.
class Violations {
 public:
  void Require(bool holds, const char* what, Nanos now) {
    if (!holds) all_.push_back(what + (" at " + std::to_string(now) + " ns"));
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::vector<std::string> all_;
};

}  // namespace tessera::plan
