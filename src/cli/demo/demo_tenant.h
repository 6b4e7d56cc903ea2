#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/child.h"

namespace tessera::cli {

// The number of kernels that a program had completed at a time, as it reported itself.
struct Sample {
  std::int64_t time_us = 0;  // CLOCK_MONOTONIC
  std::uint64_t kernels = 0;
};

// Kernels per second between two times, interpolated between samples. Nothing while the samples do not reach from one
// to the other.
std::optional<double> RateBetween(const std::vector<Sample>& samples, std::int64_t from_us, std::int64_t to_us);

// The reports of a tenant (src/tenant), which are lines of output.
struct TenantStory {
  bool ready = false;
  bool done = false;
  bool verified = false;
  std::uint64_t iterations = 0;        // of its kernels
  std::uint64_t sms = 0;               // that it sees
  std::vector<Sample> samples;         // in the order of time
  std::vector<std::uint64_t> refused;  // each time it was refused memory: the bytes that it had got until then
  std::string complaint;               // the last line that is not an event: the reason of a failure

  void Take(const std::string& line);
};

// A tenant that runs in a vGPU of the demo.
class DemoTenant {
 public:
  DemoTenant(std::string name, Child child) : name_(std::move(name)), child_(std::move(child)) {}

  const std::string& name() const { return name_; }
  const TenantStory& story() const { return story_; }
  int output() const { return child_.output(); }
  bool ended() const { return ended_; }
  // Its failure is expected.
  void MayFail() { may_fail_ = true; }
  bool may_fail() const { return may_fail_; }

  // Reads its output; to be called when output() is readable.
  void Listen();
  void Signal(int number) const { child_.Signal(number); }

 private:
  std::string name_;
  Child child_;
  TenantStory story_;
  std::string unfinished_;  // the line that it is writing
  bool ended_ = false;
  bool may_fail_ = false;
};

}  // namespace tessera::cli
