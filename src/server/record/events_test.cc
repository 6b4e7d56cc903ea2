#include "server/record/events.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "base/unique_fd.h"
#include "server/record/event_budget.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// Events belong to the whole process, so each test begins where the one before it ended.
class EventsTest : public ::testing::Test {
 protected:
  static void Note(const std::string& text) { events::Note({.type = EventType::kVGpuCreated, .text = text}); }
  const std::uint64_t before_ = events::Last();
};

TEST_F(EventsTest, WhatIsNotedCanBeReadInOrder) {
  Note("a");
  events::Note({.type = EventType::kProcessStarted, .gpu = 1, .vgpu = "team-a", .pid = 7, .text = "b"});
  const auto batch = events::After(before_, 10);
  ASSERT_EQ(batch.events.size(), 2u);
  EXPECT_EQ(batch.lost, 0u);
  EXPECT_EQ(batch.events[0].number, before_ + 1);
  EXPECT_EQ(batch.events[0].text, "a");
  EXPECT_EQ(batch.events[1].number, before_ + 2);
  EXPECT_EQ(batch.events[1].gpu, 1u);
  EXPECT_EQ(batch.events[1].vgpu, "team-a");
  EXPECT_EQ(batch.events[1].pid, 7);
  EXPECT_GE(batch.events[1].time_us, batch.events[0].time_us);
  EXPECT_TRUE(events::After(before_ + 2, 10).events.empty());
  EXPECT_TRUE(events::After(before_ + 99, 10).events.empty()) << "a number that is still to come";
  ASSERT_EQ(events::After(before_, 1).events.size(), 1u);
  EXPECT_EQ(events::After(before_, 1).events[0].text, "a");
}

TEST_F(EventsTest, WhoIsTooLateIsToldHowManyAreLost) {
  for (std::size_t i = 0; i < events::kKept + 5; ++i) Note(std::to_string(i));
  const auto batch = events::After(before_, events::kKept + 5);
  EXPECT_EQ(batch.lost, 5u);
  ASSERT_EQ(batch.events.size(), events::kKept);
  EXPECT_EQ(batch.events.front().text, "5");
  EXPECT_EQ(batch.events.back().number, events::Last());
}

TEST_F(EventsTest, WhoWaitsIsWoken) {
  const UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  events::WakeOnNote(wake.Get());
  Note("a");
  Note("b");
  eventfd_t count = 0;
  EXPECT_EQ(eventfd_read(wake.Get(), &count), 0);
  EXPECT_EQ(count, 2u);
  events::WakeOnNote(-1);
  Note("c");
  EXPECT_NE(eventfd_read(wake.Get(), &count), 0);
}

TEST_F(EventsTest, WarningsOfTheLogAreEvents) {
  const std::uint64_t errors = events::Errors();
  log::Silence(true);
  log::Debug("nothing");
  log::Info("nothing");
  log::Warn("GPU {} is warm", 3);
  log::Error("GPU {} is gone", 3);
  log::Silence(false);
  const auto batch = events::After(before_, 10);
  ASSERT_EQ(batch.events.size(), 2u);
  EXPECT_EQ(batch.events[0].type, EventType::kWarning);
  EXPECT_EQ(batch.events[0].text, "GPU 3 is warm");
  EXPECT_EQ(batch.events[1].type, EventType::kError);
  EXPECT_EQ(events::Errors(), errors + 1);
}

// A hostile user's programs come and go without end.
TEST_F(EventsTest, OneUsersProgramsDoNotPushOutWhatOthersDid) {
  constexpr uid_t kHostile = 4711, kOther = 4712;
  const auto started = [](uid_t uid) {
    events::Note({.type = EventType::kProcessStarted, .user = uid, .text = std::to_string(uid)});
  };
  started(kOther);
  for (std::size_t i = 0; i < 10 * events::kKept; ++i) started(kHostile);
  started(kOther);
  const auto batch = events::After(before_, events::kKept);
  EXPECT_EQ(batch.lost, 0u);
  EXPECT_LT(batch.events.size(), events::kKept / 2);
  EXPECT_EQ(batch.events.front().text, "4712");
  EXPECT_EQ(batch.events.back().text, "4712");
  const auto said = std::ranges::count_if(batch.events, [](const Event& event) {
    return event.text.find("user 4711 cause too many") != std::string::npos;
  });
  EXPECT_EQ(said, 1);
}

TEST_F(EventsTest, WhatAnOperatorDidAndFaultsOfAGpuAreToldWhateverTheUserDid) {
  constexpr uid_t kHostile = 4714;
  for (std::size_t i = 0; i < events::kKept; ++i) events::Note({.type = EventType::kVGpuChanged, .owner = kHostile});
  EXPECT_FALSE(events::Note({.type = EventType::kVGpuFrozen, .owner = kHostile})) << "by the owner";
  EXPECT_TRUE(events::Note({.type = EventType::kVGpuFrozen, .owner = kHostile, .by_operator = true}));
  EXPECT_TRUE(events::Note({.type = EventType::kGpuEcc, .owner = kHostile}));
}

TEST_F(EventsTest, OneUsersProgramsDoNotFillTheLog) {
  testing::internal::CaptureStdout();
  for (std::size_t i = 0; i < events::kKept; ++i) log::WarnOf(4713, "process {} breaks the protocol", i);
  const std::string text = testing::internal::GetCapturedStdout();
  const auto lines = std::ranges::count(text, '\n');
  EXPECT_GT(lines, 0);
  EXPECT_LT(lines, static_cast<std::ptrdiff_t>(events::kKept / 2));
}

TEST(EventBudget, FillsAgain) {
  EventBudget budget;
  using Verdict = EventBudget::Verdict;
  const auto told = [&](Nanos now) {
    std::size_t count = 0;
    while (budget.Ask(1, now) != Verdict::kLeaveOut) ++count;
    return count;
  };
  EXPECT_EQ(told(0), 500u);
  EXPECT_EQ(told(kSecond), 5u);
  EXPECT_EQ(told(kSecond), 0u);
  EXPECT_EQ(told(1000 * kSecond), 500u);
  EXPECT_EQ(budget.Ask(2, kSecond), Verdict::kTell);
}

TEST_F(EventsTest, TextsHaveABound) {
  Note(std::string(10'000, 'x'));
  EXPECT_EQ(events::After(before_, 1).events[0].text.size(), 500u);
}

}  // namespace
}  // namespace tessera::server
