#include "channel/rm/ioctl_event.h"

#include <gtest/gtest.h>

namespace tessera::channel {
namespace {

// Of descriptor 6. Nothing is an event of descriptor -2.
template <typename Argument>
ObjectEvent EventOf(unsigned number, const Argument& argument) {
  return EventOfIoctl(6, _IOC(_IOC_READ | _IOC_WRITE, abi::kIoctlType, number, sizeof(Argument)), &argument)
      .value_or(ObjectEvent{.fd = -2});
}
template <typename Argument>
bool IsNothing(unsigned number, const Argument& argument) {
  return EventOf(number, argument).fd == -2;
}

std::uint64_t Address(const void* params) { return reinterpret_cast<std::uint64_t>(params); }

TEST(IoctlEvent, AClientIsItsOwnObject) {
  const auto event = EventOf(abi::kAlloc, abi::AllocShort{.object = 0xc1d00001, .cls = abi::kRootClient});
  EXPECT_EQ(event.kind, ObjectEvent::Kind::kAlloc);
  EXPECT_EQ(event.fd, 6);
  EXPECT_EQ(event.client, 0xc1d00001);
  EXPECT_EQ(event.object, 0xc1d00001);
}

TEST(IoctlEvent, DetailsComeFromTheParameters) {
  const abi::DeviceParams device = {.device = 3};
  auto event = EventOf(
      abi::kAlloc, abi::Alloc{.root = 1, .parent = 1, .object = 2, .cls = abi::kDevice, .params = Address(&device)});
  EXPECT_EQ(event.detail, 3u);
  const abi::GroupParams group = {.engine = 0xb};
  event = EventOf(
      abi::kAlloc,
      abi::AllocShort{.root = 1, .parent = 2, .object = 3, .cls = abi::kChannelGroup, .params = Address(&group)});
  EXPECT_EQ(event.detail, 0xbu);
  EXPECT_EQ(event.client, 1u);
  EXPECT_EQ(event.parent, 2u);
  event = EventOf(abi::kAlloc, abi::Alloc{.root = 1, .parent = 3, .object = 4, .cls = 0xc86f});
  EXPECT_EQ(event.cls, 0xc86fu);
  EXPECT_EQ(event.detail, 0u);
  // A device without parameters is the first.
  EXPECT_EQ(EventOf(abi::kAlloc, abi::Alloc{.root = 1, .parent = 1, .object = 2, .cls = abi::kDevice}).detail, 0u);
}

TEST(IoctlEvent, AFreeOfAnything) {
  const auto event = EventOf(abi::kFree, abi::Free{.root = 1, .parent = 2, .object = 3});
  EXPECT_EQ(event.kind, ObjectEvent::Kind::kFree);
  EXPECT_EQ(event.client, 1u);
  EXPECT_EQ(event.object, 3u);
}

// Of what, no event tells: its class is not in the request.
TEST(IoctlEvent, ADuplicateIsAnObjectOfItsNewClient) {
  const auto event =
      EventOf(abi::kDup, abi::Dup{.client = 1, .parent = 2, .object = 3, .source_client = 4, .source_object = 5});
  EXPECT_EQ(event.kind, ObjectEvent::Kind::kAlloc);
  EXPECT_EQ(event.fd, 6);
  EXPECT_EQ(event.client, 1u);
  EXPECT_EQ(event.parent, 2u);
  EXPECT_EQ(event.object, 3u);
  EXPECT_EQ(event.cls, abi::kDuplicate);
}

TEST(IoctlEvent, NothingElse) {
  EXPECT_TRUE(IsNothing(abi::kDup, abi::Dup{.client = 1, .object = 3, .status = abi::kInvalidObject}));
  EXPECT_TRUE(IsNothing(abi::kDup, abi::Free{.root = 1, .object = 3}));
  EXPECT_TRUE(IsNothing(abi::kAlloc, abi::Alloc{.root = 1, .object = 4, .cls = 0xc86f, .status = abi::kNoMemory}));
  EXPECT_TRUE(IsNothing(abi::kAlloc, abi::AllocShort{.object = 4, .cls = abi::kRootClient, .status = 1}));
  EXPECT_TRUE(IsNothing(abi::kFree, abi::Free{.root = 1, .object = 4, .status = abi::kInvalidObject}));
  EXPECT_TRUE(IsNothing(abi::kAlloc, abi::Alloc{.root = 1, .object = 4, .cls = abi::kMemoryLocal}));
  EXPECT_TRUE(IsNothing(abi::kControl, abi::Control{.client = 1}));
  struct {
    char bytes[40];
  } other = {};
  EXPECT_TRUE(IsNothing(abi::kAlloc, other));
  EXPECT_FALSE(EventOfIoctl(6, 0x5401, &other));
  EXPECT_FALSE(EventOfIoctl(6, _IOC(3, abi::kIoctlType, abi::kAlloc, sizeof(abi::Alloc)), nullptr));
}

}  // namespace
}  // namespace tessera::channel
