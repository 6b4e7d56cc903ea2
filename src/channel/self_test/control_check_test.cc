#include "channel/self_test/control_check.h"

#include <gtest/gtest.h>

namespace tessera::channel {
namespace {

// A driver whose calls succeed, and do what they should or not.
class Driver : public Control {
 public:
  Result<void> Freeze(std::uint32_t, std::span<const Target>, Reach) override {
    ++freezes_;
    if (freezes_ >= idle_freezes_from) return {};
    frozen = true;
    return {};
  }
  Result<void> Thaw(std::uint32_t, std::span<const Target>, Reach reach) override {
    if (reach == Reach::kAll || thaws_work) frozen = false;
    return {};
  }
  Result<void> SetSlice(std::uint32_t, const Target&, Nanos wanted) override {
    if (sets_slices) slice = wanted;
    return {};
  }
  Result<Nanos> Slice(std::uint32_t, const Target&) override {
    if (slice < 0) return Fail(EPERM, "not for you");
    return slice;
  }
  std::uint32_t DeviceInstance(std::uint32_t gpu) const override { return gpu; }
  CallCounts Counts() const override { return {}; }

  bool frozen = false, thaws_work = true, sets_slices = true;
  int idle_freezes_from = 1000;
  Nanos slice = 2048 * kMicrosecond;

 private:
  int freezes_ = 0;
};

// The step that was the last to begin and the outcome: "freeze: the kernel went on".
std::string Outcome(Driver& driver, bool runs = true) {
  std::uint32_t count = 0;
  const Progress progress = {
      .count = [&] { return count += runs && !driver.frozen ? 1 : 0; }, .sleep = [](Nanos) {}, .settle = 0};
  std::string step;
  const auto tested = CheckControl(driver, 0, {}, progress, [&](const char* next) { step = next; });
  EXPECT_FALSE(driver.frozen);
  return step + ": " + (tested ? "ok" : tested.error().message);
}

TEST(CheckControl, PassesWhereItWorks) {
  Driver driver;
  EXPECT_EQ(Outcome(driver), "thaw: ok");
  EXPECT_EQ(driver.slice, 2048 * kMicrosecond);
}

TEST(CheckControl, SuccessWithoutEffectIsFound) {
  Driver driver;
  driver.idle_freezes_from = 1;
  EXPECT_EQ(Outcome(driver), "freeze: the kernel went on");
  Driver tired;
  tired.idle_freezes_from = 3;
  EXPECT_EQ(Outcome(tired), "freeze: the kernel went on");
}

TEST(CheckControl, AThawWithoutEffectIsFound) {
  Driver driver;
  driver.thaws_work = false;
  EXPECT_EQ(Outcome(driver), "thaw: the kernel does not go on");
}

TEST(CheckControl, SlicesThatAreNotKeptAreFound) {
  Driver driver;
  driver.sets_slices = false;
  EXPECT_EQ(Outcome(driver), "slice: a time slice of 3048 us was set, and 2048 us is there");
  driver.slice = 0;
  EXPECT_EQ(Outcome(driver), "slice: a new context has a time slice of 0");
  driver.slice = -1;
  EXPECT_EQ(Outcome(driver), "slice: not for you");
}

TEST(CheckControl, AKernelThatDoesNotRunProvesNothing) {
  Driver driver;
  EXPECT_EQ(Outcome(driver, false), "freeze: the kernel stands still before it is frozen");
}

}  // namespace
}  // namespace tessera::channel
