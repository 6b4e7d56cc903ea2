#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::tenant {

// What a program is to do over time, as one was seen to: from each step on, for which part of the time it works, and
// how much memory it has. The last step says when that ends.
class Schedule {
 public:
  struct Step {
    Nanos at = 0;              // since the begin, ascending
    double duty = 0;           // [0, 1]
    std::uint64_t memory = 0;  // bytes
  };

  // A file of comma-separated values with the columns second, duty_pct and memory_mib, in that order; the first line
  // names them. EINVAL with the line: a row is wrong, or there are fewer than two. ENOENT and so on: no such file.
  static Result<Schedule> Read(const std::string& path);
  // At least two steps, of ascending times.
  explicit Schedule(std::vector<Step> steps) : steps_(std::move(steps)) {}

  const std::vector<Step>& steps() const { return steps_; }
  Nanos end() const { return steps_.back().at; }

  // When its bursts are due, since the begin: the k-th, from 1 on, when the duty until then sums up to k times
  // `service`, the time that one takes alone.
  std::vector<Nanos> Due(Nanos service) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace tessera::tenant
