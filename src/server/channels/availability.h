#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace tessera::server {

// Says of each GPU whether its channels can be steered: that takes a way to steer them at all, and a self-test on that
// very GPU. One GPU's failed test concerns that GPU alone. Runs on the event loop's thread.
class Availability {
 public:
  // `why_none`: why no GPU's channels can ever be steered; empty: they can, until a test is under way.
  explicit Availability(std::string why_none) : why_none_(std::move(why_none)) {}

  // Why this GPU's channels cannot be steered now; empty: they can.
  const std::string& Why(std::uint32_t gpu) const {
    if (!why_none_.empty()) return why_none_;
    if (testing_) return kTesting;
    const auto lost = lost_.find(gpu);
    if (lost != lost_.end()) return lost->second;
    const auto failed = failed_.find(gpu);
    return failed == failed_.end() ? kCan : failed->second;
  }
  bool On(std::uint32_t gpu) const { return Why(gpu).empty(); }
  // Why that is so for all GPUs, whatever a test says; empty: it is not.
  const std::string& WhyNone() const { return why_none_; }

  // No GPU's channels can be steered until the end of the test, which names the GPUs that failed, and why, and says
  // something of the others.
  void BeginTest() { testing_ = true; }
  void EndTest(std::map<std::uint32_t, std::string> failed, std::string said = {}) {
    failed_ = std::move(failed);
    said_ = std::move(said);
    testing_ = false;
  }
  bool Testing() const { return testing_; }
  // What the last test said of GPUs that did not fail, for people; empty: nothing, or there was none.
  const std::string& Said() const { return said_; }

  // The GPU itself is gone: no test brings it back.
  void Lose(std::uint32_t gpu, std::string why) { lost_[gpu] = std::move(why); }

 private:
  inline static const std::string kCan, kTesting = "its test is under way";

  const std::string why_none_;
  std::map<std::uint32_t, std::string> failed_, lost_;  // by GPU: why
  std::string said_;
  bool testing_ = false;
};

}  // namespace tessera::server
