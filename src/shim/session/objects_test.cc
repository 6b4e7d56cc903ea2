#include "shim/session/objects.h"

#include "shim/testing/shim_fixture.h"

namespace tessera::shim {
namespace {

using Kind = channel::ObjectEvent::Kind;

class ObjectsTest : public ShimFixture {
 protected:
  ObjectsTest() : ShimFixture(false) {}
  // Each test has a client of its own, and frees it at the end.
  ~ObjectsTest() override { Free(client); }
  void Make(std::uint32_t object, std::uint32_t parent) {
    NoteObject({.kind = Kind::kAlloc, .fd = 9, .client = client, .parent = parent, .object = object, .cls = 5});
  }
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
