#include "kubernetes/device_plugin/preference.h"

#include <gtest/gtest.h>

namespace tessera::kubernetes {
namespace {

using Ids = std::vector<std::string>;

TEST(Preference, TheFullestGpuComesFirst) {
  const Ids available = {"a::0", "a::1", "a::2", "b::2", "c::1", "c::2"};
  EXPECT_EQ(Preferred(available, {}, 1, {.each = 3, .room = {}, .need = 0}), Ids{"b::2"});
  EXPECT_EQ(Preferred({"b::1", "a::2", "a::1"}, {}, 1, {.each = 3, .room = {}, .need = 0}), Ids{"b::1"});
}

TEST(Preference, OfTwoThatAreAsFullTheOneWithLessRoom) {
  const PreferenceFacts facts{.each = 2, .room = {{"a", 3}, {"b", 2}}, .need = 1};
  EXPECT_EQ(Preferred({"a::0", "b::0"}, {}, 1, facts), Ids{"b::0"});
}

TEST(Preference, RoomForWhatIsNeededGoesBeforeAll) {
  PreferenceFacts facts{.each = 3, .room = {{"a", 1}, {"b", 4}}, .need = 2};
  EXPECT_EQ(Preferred({"a::2", "b::0", "b::1", "b::2"}, {}, 1, facts), Ids{"b::0"});
  facts.room["b"] = 1;  // nobody has it
  EXPECT_EQ(Preferred({"a::2", "b::0", "b::1", "b::2"}, {}, 1, facts), Ids{"a::2"});
}

TEST(Preference, OneContainerGetsDifferentGpus) {
  const Ids available = {"a::1", "a::2", "b::0", "b::1", "b::2"};
  const PreferenceFacts facts{.each = 3, .room = {}, .need = 0};
  EXPECT_EQ(Preferred(available, {}, 2, facts), (Ids{"a::1", "b::0"}));
  EXPECT_EQ(Preferred(available, {}, 3, facts), (Ids{"a::1", "b::0", "a::2"}));
  EXPECT_EQ(Preferred(available, {"a::2"}, 2, facts), (Ids{"a::2", "b::0"}));
}

TEST(Preference, ItsOwnDevicesNeedRoomTogether) {
  const PreferenceFacts facts{.each = 2, .room = {{"a", 2}, {"b", 4}}, .need = 2};
  EXPECT_EQ(Preferred({"a::0", "a::1", "b::0", "b::1"}, {}, 3, facts), (Ids{"a::0", "b::0", "b::1"}));
}

TEST(Preference, FewerWhereThereAreNotSoMany) {
  EXPECT_EQ(Preferred({"a::0", "nonsense"}, {}, 3, {.each = 1, .room = {}, .need = 0}), Ids{"a::0"});
  EXPECT_EQ(Preferred({}, {}, 1, {}), Ids());
}

}  // namespace
}  // namespace tessera::kubernetes
