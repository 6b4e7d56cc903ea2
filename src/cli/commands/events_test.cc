#include "cli/commands/events.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

namespace tessera::cli {
using client::Json;

namespace {

TEST(Events, AreTakenFromAStreamAsTheyComeWhole) {
  std::string text =
      "retry: 1000\n\nid: 1-1\nevent: vgpu.created\ndata: {\"number\":1}\n\n: nothing new\n\nid: 1-2\nda";
  auto events = TakeEvents(text);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["number"], 1);
  EXPECT_EQ(text, "id: 1-2\nda");
  text += "ta: {\"number\":2}\n\nevent: lost\ndata: {\"events\":7}\n\ndata: [broken\n\n";
  events = TakeEvents(text);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["number"], 2);
  EXPECT_EQ(events[1], (Json{{"lost", 7}}));
  EXPECT_EQ(text, "");
}

TEST(Events, AreLinesForPeople) {
  setenv("TZ", "UTC", 1);
  tzset();
  Json event = {
      {"time_us", 1'790'000'000'000'000}, {"type", "vgpu.created"}, {"gpu", 0}, {"vgpu", "team-a"}, {"pid", nullptr},
      {"text", "memory 1 GiB:1 GiB"}};
  EXPECT_EQ(FormatEvent(event), "Sep 21 14:13:20  vgpu.created       team-a  GPU 0  memory 1 GiB:1 GiB");
  event = {{"time_us", 0}, {"type", "process.started"}, {"pid", 7}, {"text", "a\033[2Jb"}};
  EXPECT_EQ(FormatEvent(event), "Jan 01 00:00:00  process.started    process 7  a?[2Jb");
  EXPECT_EQ(FormatEvent(Json::object()), "Jan 01 00:00:00                   ") << "of another version";
}

}  // namespace
}  // namespace tessera::cli
