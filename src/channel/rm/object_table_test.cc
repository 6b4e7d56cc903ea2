#include "channel/rm/object_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/testing/same_cases.h"
#include "channel/rm/driver_abi.h"

namespace tessera::channel {
namespace {

constexpr std::uint32_t kHopperChannel = 0xc86f;

ObjectEvent Client(std::uint32_t client, std::int32_t fd = 7) {
  return {.fd = fd, .client = client, .object = client, .cls = abi::kRootClient};
}
ObjectEvent Made(std::uint32_t client, std::uint32_t parent, std::uint32_t object, std::uint32_t cls,
                 std::uint32_t detail = 0) {
  return {.fd = 7, .client = client, .parent = parent, .object = object, .cls = cls, .detail = detail};
}
ObjectEvent Freed(std::uint32_t client, std::uint32_t object) {
  return {.kind = ObjectEvent::Kind::kFree, .client = client, .object = object};
}

// A client with a device 0 (handle 2), a compute group 3 of channels 30 and 31, a copy group 4 of channel 40.
ObjectTable OneContext() {
  ObjectTable table;
  EXPECT_FALSE(table.Apply(Client(1)));
  EXPECT_FALSE(table.Apply(Made(1, 1, 2, abi::kDevice, 0)));
  EXPECT_TRUE(table.Apply(Made(1, 2, 3, abi::kChannelGroup, abi::kEngineGraphics)));
  EXPECT_TRUE(table.Apply(Made(1, 2, 4, abi::kChannelGroup, 0xb)));
  EXPECT_TRUE(table.Apply(Made(1, 3, 31, kHopperChannel)));
  EXPECT_TRUE(table.Apply(Made(1, 3, 30, kHopperChannel)));
  EXPECT_TRUE(table.Apply(Made(1, 4, 40, kHopperChannel)));
  return table;
}

TEST(ObjectTable, AGroupOfAnotherProcessIsBorrowed) {
  ObjectTable table = OneContext();
  EXPECT_TRUE(table.Apply(Made(1, 2, 5, abi::kBorrowedGroup, abi::kEngineGraphics)));
  EXPECT_TRUE(table.Apply(Made(1, 5, 50, kHopperChannel)));
  const auto groups = table.Groups(0);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_FALSE(groups[0].borrowed);
  EXPECT_EQ(groups[2], (Group{.fd = 7, .client = 1, .handle = 5, .engine = 1, .borrowed = true, .channels = {50}}));
  EXPECT_FALSE(table.Apply(Made(1, 1, 60, abi::kBorrowedGroup))) << "it lies below a device";
}

TEST(ObjectTable, GroupsComeOutInTheOrderOfTheirMaking) {
  const ObjectTable table = OneContext();
  const std::vector<Group> expected = {
      {.fd = 7, .client = 1, .handle = 3, .engine = 1, .channels = {31, 30}},
      {.fd = 7, .client = 1, .handle = 4, .engine = 0xb, .channels = {40}},
  };
  EXPECT_EQ(table.Groups(0), expected);
  EXPECT_TRUE(table.Groups(1).empty());
  EXPECT_EQ(table.Channels(), 3u);
  EXPECT_EQ(table.Objects(), 7u);
}

TEST(ObjectTable, ChannelsOfADeviceHaveNoGroup) {
  ObjectTable table;
  table.Apply(Client(1));
  table.Apply(Made(1, 1, 2, abi::kDevice, 5));
  EXPECT_TRUE(table.Apply(Made(1, 2, 9, 0xc46f)));
  EXPECT_TRUE(table.Apply(Made(1, 2, 8, 0xc46f)));
  const std::vector<Group> expected = {{.fd = 7, .client = 1, .handle = 0, .engine = 0, .channels = {9, 8}}};
  EXPECT_EQ(table.Groups(5), expected);
}

TEST(ObjectTable, DevicesAndClientsAreToldApart) {
  ObjectTable table = OneContext();
  table.Apply(Made(1, 1, 5, abi::kDevice, 1));
  table.Apply(Made(1, 5, 6, abi::kChannelGroup, 1));
  table.Apply(Client(100, 8));
  table.Apply(Made(100, 100, 2, abi::kDevice, 1));
  table.Apply(Made(100, 2, 3, abi::kChannelGroup, 1));
  const std::vector<Group> expected = {
      {.fd = 7, .client = 1, .handle = 6, .engine = 1, .channels = {}},
      {.fd = 8, .client = 100, .handle = 3, .engine = 1, .channels = {}},
  };
  EXPECT_EQ(table.Groups(1), expected);
  EXPECT_EQ(table.Groups(0), OneContext().Groups(0));
}

TEST(ObjectTable, AFreeTakesWhatLiesBelow) {
  ObjectTable table = OneContext();
  EXPECT_TRUE(table.Apply(Freed(1, 30)));
  EXPECT_EQ(table.Groups(0)[0].channels, std::vector<std::uint32_t>{31});
  EXPECT_TRUE(table.Apply(Freed(1, 3)));
  EXPECT_EQ(table.Groups(0).size(), 1u);
  EXPECT_FALSE(table.Apply(Freed(1, 31)));
  EXPECT_TRUE(table.Apply(Freed(1, 2)));
  EXPECT_EQ(table.Objects(), 1u);
  EXPECT_FALSE(table.Apply(Freed(1, 1)));
  EXPECT_TRUE(table.Empty());
}

TEST(ObjectTable, AFreeOfTheClientTakesAllOfIt) {
  ObjectTable table = OneContext();
  table.Apply(Client(2));
  EXPECT_TRUE(table.Apply(Freed(1, 1)));
  EXPECT_EQ(table.Objects(), 1u);
  EXPECT_EQ(table.Channels(), 0u);
}

TEST(ObjectTable, ToldTwiceIsAsToldOnce) {
  ObjectTable table = OneContext();
  EXPECT_FALSE(table.Apply(Client(1)));
  EXPECT_FALSE(table.Apply(Client(1, -1)));
  EXPECT_FALSE(table.Apply(Made(1, 1, 2, abi::kDevice, 0)));
  EXPECT_FALSE(table.Apply(Made(1, 2, 3, abi::kChannelGroup, abi::kEngineGraphics)));
  EXPECT_FALSE(table.Apply(Made(1, 3, 30, kHopperChannel)));
  EXPECT_EQ(table.Groups(0), OneContext().Groups(0));
}

TEST(ObjectTable, TheFileIsLearnedFromWhoeverTellsIt) {
  ObjectTable table;
  table.Apply(Client(1, -1));
  ObjectEvent device = Made(1, 1, 2, abi::kDevice);
  device.fd = -1;
  table.Apply(device);
  ObjectEvent group = Made(1, 2, 3, abi::kChannelGroup, 1);
  group.fd = -1;
  table.Apply(group);
  EXPECT_EQ(table.Groups(0)[0].fd, -1);
  group.fd = 12;
  EXPECT_TRUE(table.Apply(group));
  EXPECT_EQ(table.Groups(0)[0].fd, 12);
}

TEST(ObjectTable, AClientOfAnotherFileIsANewOne) {
  ObjectTable table = OneContext();
  EXPECT_TRUE(table.Apply(Client(1, 9)));
  EXPECT_EQ(table.Objects(), 1u);
}

TEST(ObjectTable, AHandleThatMeansSomethingElseReplacesWhatItNamed) {
  ObjectTable table = OneContext();
  EXPECT_TRUE(table.Apply(Made(1, 2, 3, abi::kChannelGroup, 0xc)));
  ASSERT_EQ(table.Groups(0).size(), 2u);
  EXPECT_EQ(table.Groups(0)[1], (Group{.fd = 7, .client = 1, .handle = 3, .engine = 0xc, .channels = {}}));
  EXPECT_TRUE(table.Apply(Made(1, 1, 2, abi::kDevice, 3)));
  EXPECT_EQ(table.Objects(), 2u);
}

TEST(ObjectTable, NonsenseIsIgnored) {
  ObjectTable table = OneContext();
  const std::size_t before = table.Objects();
  const ObjectEvent nonsense[] = {
      {.client = 5, .object = 6, .cls = abi::kRootClient},  // a client that is not itself
      Client(0),
      Made(5, 5, 6, abi::kDevice),             // of a client that nobody made
      Made(1, 1, 0, abi::kDevice),             // no handle
      Made(1, 1, 1, abi::kDevice),             // over its client
      Made(1, 2, 50, abi::kDevice),            // below a device
      Made(1, 1, 50, abi::kChannelGroup, 1),   // below a client
      Made(1, 3, 50, abi::kChannelGroup, 1),   // below a group
      Made(1, 1, 50, kHopperChannel),          // below a client
      Made(1, 30, 50, kHopperChannel),         // below a channel
      Made(1, 50, 50, kHopperChannel),         // below itself
      Made(1, 2, 50, abi::kMemoryLocal),       // of no interest
      Made(1, 77, 50, abi::kChannelGroup, 1),  // below nothing
      Freed(1, 77),
      Freed(77, 1),
      {.kind = static_cast<ObjectEvent::Kind>(9), .client = 1, .object = 1, .cls = abi::kRootClient},
  };
  for (const ObjectEvent& event : nonsense) EXPECT_FALSE(table.Apply(event));
  EXPECT_EQ(table.Objects(), before);
  EXPECT_EQ(table.Groups(0), OneContext().Groups(0));
}

TEST(ObjectTable, AChannelThatTakesThePlaceOfItsOwnAncestorGoesWithIt) {
  ObjectTable table = OneContext();
  EXPECT_TRUE(table.Apply(Made(1, 3, 2, kHopperChannel)));
  EXPECT_EQ(table.Objects(), 1u);
}

TEST(ObjectTable, HasABound) {
  ObjectTable table;
  table.Apply(Client(1));
  table.Apply(Made(1, 1, 2, abi::kDevice));
  for (std::uint32_t i = 0; i < 2 * ObjectTable::kMostObjects; ++i) {
    table.Apply(Made(1, 2, 1000 + i, abi::kChannelGroup, 1));
  }
  EXPECT_EQ(table.Objects(), ObjectTable::kMostObjects);
  EXPECT_FALSE(table.Apply(Client(3)));
  EXPECT_TRUE(table.Apply(Freed(1, 1000)));
  EXPECT_FALSE(table.Apply(Client(3)));
  EXPECT_EQ(table.Objects(), ObjectTable::kMostObjects);
  EXPECT_TRUE(table.Apply(Freed(1, 1)));
  EXPECT_EQ(table.Objects(), 1u);
}

// The same in the plainest way: a list in the order of making, searched from end to end.
class Model {
 public:
  void Apply(const ObjectEvent& event) {
    if (event.kind == ObjectEvent::Kind::kFree) return Remove(event.client, event.object);
    if (!Allowed(event)) return;
    const bool root = abi::IsRoot(event.cls);
    if (const ObjectEvent* known = Find(event.client, event.object)) {
      const bool same_parent = root || known->parent == event.parent;
      const bool same_file = !root || known->fd < 0 || event.fd < 0 || known->fd == event.fd;
      if (abi::IsRoot(known->cls) == root && same_parent && known->cls == event.cls && known->detail == event.detail &&
          same_file) {
        return Learn(event);
      }
      Remove(event.client, event.object);
      if (!Allowed(event)) return;
    }
    objects_.push_back(event);
    Learn(event);
  }

  std::vector<Group> Groups(std::uint32_t device) {
    std::vector<Group> groups;
    for (const ObjectEvent& object : objects_) {
      if (object.cls == abi::kChannelGroup && Find(object.client, object.parent)->detail == device) {
        At(groups, object.client, object.object, object.detail);
      }
      if (!abi::IsChannel(object.cls)) continue;
      const ObjectEvent& parent = *Find(object.client, object.parent);
      if (parent.cls == abi::kDevice && parent.detail == device) {
        At(groups, object.client, 0, 0).channels.push_back(object.object);
      }
      if (parent.cls == abi::kChannelGroup && Find(parent.client, parent.parent)->detail == device) {
        At(groups, object.client, parent.object, parent.detail).channels.push_back(object.object);
      }
    }
    return groups;
  }
  std::size_t Objects() const { return objects_.size(); }

 private:
  ObjectEvent* Find(std::uint32_t client, std::uint32_t handle) {
    const auto found = std::ranges::find_if(
        objects_, [&](const ObjectEvent& object) { return object.client == client && object.object == handle; });
    return found == objects_.end() ? nullptr : &*found;
  }
  bool Allowed(const ObjectEvent& event) {
    if (event.object == 0) return false;
    if (abi::IsRoot(event.cls)) return event.client == event.object;
    const ObjectEvent* parent = Find(event.client, event.parent);
    if (event.object == event.client || event.object == event.parent || parent == nullptr) return false;
    switch (event.cls) {
      case abi::kDevice:
        return event.parent == event.client;
      case abi::kChannelGroup:
        return parent->cls == abi::kDevice;
      default:
        return parent->cls == abi::kDevice || parent->cls == abi::kChannelGroup;
    }
  }
  void Learn(const ObjectEvent& event) {
    ObjectEvent* client = Find(event.client, event.client);
    if (client->fd < 0) client->fd = event.fd;
  }
  void Remove(std::uint32_t client, std::uint32_t handle) {
    std::erase_if(objects_, [&](const ObjectEvent& o) { return o.client == client && o.object == handle; });
    // Objects without a parent go too, until all that are left have one.
    while (std::erase_if(objects_, [&](const ObjectEvent& o) {
             return !abi::IsRoot(o.cls) && Find(o.client, o.parent) == nullptr;
           }) != 0) {
    }
  }
  Group& At(std::vector<Group>& groups, std::uint32_t client, std::uint32_t handle, std::uint32_t engine) {
    for (Group& group : groups) {
      if (group.client == client && group.handle == handle) return group;
    }
    groups.push_back({.fd = Find(client, client)->fd, .client = client, .handle = handle, .engine = engine});
    return groups.back();
  }

  std::vector<ObjectEvent> objects_;
};

// Few handles, so that they meet.
ObjectEvent AnyEvent() {
  const auto client = *rc::gen::inRange<std::uint32_t>(1, 3);
  const auto fd = *rc::gen::inRange(-1, 3);
  const auto device = *rc::gen::inRange<std::uint32_t>(0, 2);
  const auto handle = *rc::gen::inRange<std::uint32_t>(0, 12);
  const auto parent = *rc::gen::inRange<std::uint32_t>(0, 12);
  switch (*rc::gen::inRange(0, 10)) {
    case 0:
      return Client(client, fd);
    case 1:
    case 2:
      return {.fd = fd, .client = client, .parent = client, .object = handle, .cls = abi::kDevice, .detail = device};
    case 3:
    case 4:
    case 5:
      return {
          .fd = fd, .client = client, .parent = parent, .object = handle, .cls = abi::kChannelGroup, .detail = device};
    case 6:
      return Freed(client, handle);
    default:
      return {.fd = fd, .client = client, .parent = parent, .object = handle, .cls = kHopperChannel};
  }
}

RC_GTEST_PROP(ObjectTableProperty, IsWhatAPlainListSays, ()) {
  ObjectTable table;
  Model model;
  const int events = *rc::gen::inRange(0, 300);
  for (int i = 0; i < events; ++i) {
    const std::vector<Group> before[] = {table.Groups(0), table.Groups(1)};
    const ObjectEvent event = AnyEvent();
    const bool changed = table.Apply(event);
    model.Apply(event);
    RC_ASSERT(table.Objects() == model.Objects());
    std::size_t channels = 0;
    for (const std::uint32_t device : {0u, 1u}) {
      const auto groups = table.Groups(device);
      RC_ASSERT(groups == model.Groups(device));
      if (groups != before[device]) RC_ASSERT(changed);
      for (const Group& group : groups) channels += group.channels.size();
    }
    RC_ASSERT(table.Channels() == channels);
  }
}

}  // namespace
}  // namespace tessera::channel
