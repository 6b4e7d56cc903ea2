#include "shim/session/objects.h"

#include "channel/rm/driver_abi.h"
#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using Kind = channel::ObjectEvent::Kind;

class ObjectsTest : public ShimFixture {
 protected:
  ObjectsTest() : ShimFixture(false) {}
  // Each test has a client of its own, and frees it at the end.
  ~ObjectsTest() override { Free(client); }
  void Make(std::uint32_t object, std::uint32_t parent, std::uint32_t cls = 5) {
    NoteObject({.kind = Kind::kAlloc, .fd = 9, .client = client, .parent = parent, .object = object, .cls = cls});
  }
  void MakeChannel(std::uint32_t object, std::uint32_t parent) { Make(object, parent, channel::abi::kAnyChannel); }
  void Duplicate(std::uint32_t object, std::uint32_t parent) { Make(object, parent, channel::abi::kDuplicate); }
  void Free(std::uint32_t object) { NoteObject({.kind = Kind::kFree, .fd = 9, .client = client, .object = object}); }
  std::vector<wire::Object> Told() {
    Settle();
    std::vector<wire::Object> told;
    for (const wire::Object& object : Daemon().All<wire::Object>(0))
      if (object.client == client) told.push_back(object);
    return told;
  }
  // Objects that a daemon which comes now is told of.
  std::vector<std::uint32_t> Existing() {
    const std::size_t before = Told().size();
    TellObjects(Session::Instance());
    std::vector<std::uint32_t> existing;
    const auto told = Told();
    for (std::size_t i = before; i < told.size(); ++i) existing.push_back(told[i].object);
    return existing;
  }

  const std::uint32_t client = 0xc0000000 + gpu;
};

TEST_F(ObjectsTest, TheDaemonIsToldOfEach) {
  Make(client, 0);
  Make(1, client);
  Free(1);
  const auto told = Told();
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[1].kind, 1u);
  EXPECT_EQ(told[1].parent, client);
  EXPECT_EQ(told[1].object, 1u);
  EXPECT_EQ(told[1].cls, 5u);
  EXPECT_EQ(told[1].fd, 9);
  EXPECT_EQ(told[2].kind, 2u);
}

TEST_F(ObjectsTest, WithAnObjectGoesAllThatIsUnderIt) {
  Make(client, 0);
  Make(1, client);
  Make(2, 1);
  Make(3, 2);
  Make(4, client);
  Free(2);
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 1u, 4u));
  Free(client);
  EXPECT_THAT(Existing(), testing::IsEmpty());
}

TEST_F(ObjectsTest, ClientsHaveTheSameNamesForTheirObjects) {
  Make(client, 0);
  Make(1, client);
  NoteObject({.kind = Kind::kFree, .fd = 9, .client = client + 0x10000, .object = 1});
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 1u));
}

TEST_F(ObjectsTest, FreeingNothingIsNoNews) {
  Make(client, 0);
  Free(0);
  Free(77);
  EXPECT_EQ(Told().size(), 1u);
  EXPECT_THAT(Existing(), testing::ElementsAre(client));
}

// As a client of MPS does: its channels are in a duplicate of its server's group.
TEST_F(ObjectsTest, ADuplicateInWhichAChannelIsMadeIsAGroup) {
  Make(client, 0);
  Make(2, client);
  Duplicate(3, 2);
  EXPECT_EQ(Told().size(), 2u) << "most duplicates are memory";
  MakeChannel(10, 3);
  auto told = Told();
  ASSERT_EQ(told.size(), 4u);
  EXPECT_EQ(told[2].object, 3u) << "the group first";
  EXPECT_EQ(told[2].parent, 2u);
  EXPECT_EQ(told[2].cls, channel::abi::kBorrowedGroup);
  EXPECT_EQ(told[2].detail, channel::abi::kEngineGraphics);
  EXPECT_EQ(told[3].object, 10u);
  EXPECT_EQ(told[3].parent, 3u);
  MakeChannel(11, 3);
  told = Told();
  ASSERT_EQ(told.size(), 5u) << "the group once";
  EXPECT_EQ(told[4].object, 11u);
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 2u, 3u, 10u, 11u));
  Free(3);
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 2u));
}

TEST_F(ObjectsTest, OtherDuplicatesAreNotTold) {
  Make(client, 0);
  Duplicate(3, client);
  Make(4, 3);  // no channel
  Duplicate(5, client);
  Free(5);
  MakeChannel(10, 5);  // in what is no duplicate any more
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 4u, 10u));
}

TEST_F(ObjectsTest, DuplicatesEndWithTheirParentAndTheirClient) {
  Make(client, 0);
  Make(2, client);
  Duplicate(3, 2);
  Free(2);
  MakeChannel(10, 3);
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 10u));
  Duplicate(4, client);
  Free(client);
  Make(client, 0);
  MakeChannel(11, 4);
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 11u));
}

TEST_F(ObjectsTest, OnlyTheLastDuplicatesAreRemembered) {
  Make(client, 0);
  for (std::uint32_t object = 100; object < 165; ++object) Duplicate(object, client);
  MakeChannel(10, 100);
  MakeChannel(11, 101);
  EXPECT_THAT(Existing(), testing::ElementsAre(client, 10u, 101u, 11u));
}

TEST_F(ObjectsTest, WhatADaemonMissedTheNextOneHears) {
  EndDaemon();
  Make(client, 0);
  Make(1, client);
  StartDaemon();
  EXPECT_TRUE(DaemonWatch::Instance().Reconnect());
  EXPECT_EQ(Told().size(), 2u) << "when it welcomed the process";
}

}  // namespace
}  // namespace tessera::shim
