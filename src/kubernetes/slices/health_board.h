#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::kubernetes {

// A device of this node, and whether it works.
struct DeviceHealth {
  enum class State { kUnknown, kHealthy, kUnhealthy };
  std::string device;
  State state = State::kUnknown;
  std::string message;  // for people; empty: nothing to say
  bool operator==(const DeviceHealth&) const = default;
};

// The health of this node's devices as it was last seen, for all who follow it. Any thread.
class HealthBoard {
 public:
  struct Seen {
    std::vector<DeviceHealth> devices;
    std::uint64_t version = 0;  // grows with each change
  };

  void Set(std::vector<DeviceHealth> devices);
  // tesserad does not answer: nothing is known of the devices that were there.
  void SetUnknown(const std::string& why);
  // As soon as it is newer than `version`, at the latest after `patience`.
  Seen WaitNewer(std::uint64_t version, std::chrono::milliseconds patience);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Seen seen_;
};

}  // namespace tessera::kubernetes
