#include "guard/request/requests.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

template <typename Struct>
Request DecodeStruct(std::uint32_t number, const Struct& argument) {
  return Decode(number, std::as_bytes(std::span(&argument, 1)));
}

Decision DecideControl(std::uint32_t command, std::vector<std::uint8_t> params = {}) {
  const abi::Control control{.client = 1, .object = 2, .command = command};
  return Decide(DecodeStruct(abi::kControl, control), std::as_bytes(std::span(params)));
}

TEST(RequestsTest, KnowsTheSizesOfTheDriver) {
  EXPECT_TRUE(IsGuarded(abi::kAlloc, 32));
  EXPECT_TRUE(IsGuarded(abi::kAlloc, 48));
  EXPECT_FALSE(IsGuarded(abi::kAlloc, 40));
  EXPECT_FALSE(IsGuarded(abi::kFree, 32));
  EXPECT_TRUE(IsGuarded(kAllocObject, 20));
  EXPECT_FALSE(IsGuarded(kAllocObject, 24));
  EXPECT_FALSE(IsGuarded(0x4e, 56)) << "mapping memory is not ours to look at";
}

TEST(RequestsTest, DecodesBothAllocations) {
  const abi::Alloc alloc{.root = 1, .parent = 2, .object = 3, .cls = 4, .params = 5, .rights = 6, .params_bytes = 7};
  const Request request = DecodeStruct(abi::kAlloc, alloc);
  EXPECT_EQ(request.kind, Request::Kind::kAlloc);
  EXPECT_EQ(request.client, 1u);
  EXPECT_EQ(request.parent, 2u);
  EXPECT_EQ(request.object, 3u);
  EXPECT_EQ(request.cls, 4u);
  EXPECT_EQ(request.params, 5u);
  EXPECT_EQ(request.rights, 6u);
  EXPECT_EQ(request.params_bytes, 7u);
  EXPECT_EQ(request.status_offset, 40u);

  const abi::AllocShort small{.root = 1, .parent = 2, .object = 3, .cls = 4, .params = 5, .params_bytes = 7};
  const Request older = DecodeStruct(abi::kAlloc, small);
  EXPECT_EQ(older.params_bytes, 7u);
  EXPECT_EQ(older.rights, 0u);
  EXPECT_EQ(older.status_offset, 28u);
}

TEST(RequestsTest, DecodesTheOthers) {
  const Request control =
      DecodeStruct(abi::kControl, abi::Control{.client = 1, .object = 2, .command = 3, .params = 4, .params_bytes = 5});
  EXPECT_EQ(control.kind, Request::Kind::kControl);
  EXPECT_EQ(control.object, 2u);
  EXPECT_EQ(control.command, 3u);
  EXPECT_EQ(control.params, 4u);
  EXPECT_EQ(control.params_bytes, 5u);
  const Request dup =
      DecodeStruct(abi::kDup, abi::Dup{.client = 1, .parent = 2, .object = 3, .source_client = 4, .source_object = 5});
  EXPECT_EQ(dup.kind, Request::Kind::kDup);
  EXPECT_EQ(dup.source_client, 4u);
  EXPECT_EQ(dup.source_object, 5u);
  const Request free = DecodeStruct(abi::kFree, abi::Free{.root = 1, .parent = 2, .object = 3});
  EXPECT_EQ(free.kind, Request::Kind::kFree);
  EXPECT_EQ(free.object, 3u);
  EXPECT_EQ(free.status_offset, 12u);
}

// Words of an NVOS32_PARAMETERS.
std::array<std::uint32_t, 46> Heap(std::uint32_t function, std::uint32_t flags, std::uint32_t attributes) {
  std::array<std::uint32_t, 46> heap{1, 2, function};
  heap[11] = 3;  // handle
  heap[13] = flags;
  heap[14] = attributes;
  heap[20] = 14;  // size of ALLOC_SIZE_RANGE
  heap[22] = 2;   // size of ALLOC_SIZE
  return heap;
}

TEST(RequestsTest, CountsTheHeapsOfOlderDrivers) {
  const Request size = DecodeStruct(abi::kHeapControl, Heap(2, 0, 0));
  EXPECT_EQ(size.kind, Request::Kind::kHeapAlloc);
  EXPECT_EQ(size.object, 3u);
  EXPECT_EQ(size.bytes, 2u);
  EXPECT_EQ(DecodeStruct(abi::kHeapControl, Heap(14, 0, 0)).bytes, 14u);
  EXPECT_EQ(DecodeStruct(abi::kHeapControl, Heap(2, 0, 3u << 25)).kind, Request::Kind::kHeapAlloc) << "anywhere";
  EXPECT_EQ(DecodeStruct(abi::kHeapControl, Heap(2, 0, 1u << 25)).kind, Request::Kind::kHeapOther) << "host memory";
  EXPECT_EQ(DecodeStruct(abi::kHeapControl, Heap(2, 0x80000, 0)).kind, Request::Kind::kHeapOther) << "addresses";
  EXPECT_EQ(DecodeStruct(abi::kHeapControl, Heap(3, 0, 0)).kind, Request::Kind::kHeapFree);

  EXPECT_EQ(Decide(size, {}).action, Action::kMemory);
  EXPECT_EQ(Decide(DecodeStruct(abi::kHeapControl, Heap(5, 0, 0)), {}).action, Action::kPass) << "a question";
  EXPECT_EQ(Decide(DecodeStruct(abi::kHeapControl, Heap(6, 0, 0)), {}).status, abi::kNotSupported);
}

TEST(RequestsTest, AllocationsByClass) {
  const auto action = [](std::uint32_t cls) {
    return Decide(DecodeStruct(abi::kAlloc, abi::Alloc{.cls = cls}), {}).action;
  };
  EXPECT_EQ(action(abi::kMemoryLocal), Action::kMemory);
  EXPECT_EQ(action(abi::kDevice), Action::kObject);
  EXPECT_EQ(action(abi::kChannelGroup), Action::kObject);
  EXPECT_EQ(action(0xc86f), Action::kObject);
  EXPECT_EQ(action(abi::kRootClient), Action::kClient);
  EXPECT_EQ(action(abi::kMemorySystem), Action::kPass);
  EXPECT_EQ(action(abi::kSubdevice), Action::kPass);
  EXPECT_EQ(action(0x79), Action::kPass) << "an event, which names a descriptor of the program";
  EXPECT_EQ(action(0x3f), Action::kPass) << "registers take no memory";
  EXPECT_EQ(action(0xc2), Action::kAnswer) << "the neighbours' memory";
}

TEST(RequestsTest, OldAllocationsOfGpuMemoryAreRefused) {
  const auto decide = [](std::uint32_t cls) {
    const std::array<std::uint32_t, 14> words{1, 2, 3, cls};
    return Decide(DecodeStruct(kAllocMemory, words), {});
  };
  EXPECT_EQ(decide(abi::kMemorySystem).action, Action::kPass);
  EXPECT_EQ(decide(0x71).action, Action::kPass);
  EXPECT_EQ(decide(0x70).action, Action::kPass) << "addresses";
  EXPECT_EQ(decide(0x3f).action, Action::kPass) << "the Vulkan driver makes two when it starts";
  EXPECT_EQ(decide(0xc2).status, abi::kNotSupported);
  EXPECT_EQ(decide(0x81).status, abi::kNotSupported);
  EXPECT_EQ(decide(abi::kMemoryLocal).action, Action::kPass) << "a handle on the whole, which takes nothing";
}

TEST(RequestsTest, OldAllocationsOfWhatLeadsToChannelsAreRefused) {
  const auto decode = [](std::uint32_t cls) {
    return DecodeStruct(kAllocObject, std::array<std::uint32_t, 5>{1, 2, 3, cls});
  };
  const Request request = decode(abi::kDevice);
  EXPECT_EQ(request.kind, Request::Kind::kAllocObject);
  EXPECT_EQ(request.client, 1u);
  EXPECT_EQ(request.parent, 2u);
  EXPECT_EQ(request.object, 3u);
  EXPECT_EQ(request.cls, std::uint32_t{abi::kDevice});
  EXPECT_EQ(request.status_offset, 16u);
  for (const std::uint32_t cls : {0x80u, 0xa06cu, 0xc86fu, 0xc96fu, 0x40u, 0xc2u}) {
    const Decision decision = Decide(decode(cls), {});
    EXPECT_EQ(decision.action, Action::kAnswer) << std::hex << cls;
    EXPECT_EQ(decision.status, abi::kInsufficientPermissions) << std::hex << cls;
    EXPECT_FALSE(decision.why.empty()) << std::hex << cls;
  }
  EXPECT_EQ(Decide(decode(abi::kRootClient), {}).action, Action::kClient);
  EXPECT_EQ(Decide(decode(abi::kSubdevice), {}).action, Action::kPass);
}

TEST(RequestsTest, WrappedRequestsAreRefused) {
  const Decision decision = Decide(DecodeStruct(kWrapped, std::array<std::uint32_t, 4>{abi::kAlloc, 48}), {});
  EXPECT_EQ(decision.action, Action::kFail);
  EXPECT_EQ(decision.error, EINVAL);
}

TEST(RequestsTest, ControlsOverOthersAreRefused) {
  for (const std::uint32_t command : {0x801711u, 0x20801117u, 0x20801115u, 0x2080110au, 0xa06c0105u, 0x20801116u,
                                      0x2080111au, 0x2080111bu, 0x2080111cu}) {
    const Decision decision = DecideControl(command);
    EXPECT_EQ(decision.action, Action::kAnswer) << std::hex << command;
    EXPECT_EQ(decision.status, abi::kInsufficientPermissions) << std::hex << command;
    EXPECT_FALSE(decision.why.empty()) << std::hex << command;
  }
}

TEST(RequestsTest, ItsOwnTimeIsPretended) {
  for (const std::uint32_t command : {0xa06c0103u, 0xa06c0107u, 0xa06c0110u, 0xa06f0109u}) {
    const Decision decision = DecideControl(command);
    EXPECT_EQ(decision.action, Action::kAnswer) << std::hex << command;
    EXPECT_EQ(decision.status, abi::kOk) << std::hex << command;
  }
  EXPECT_EQ(DecideControl(0xa06c0101, {1}).action, Action::kPass) << "a group is enabled when a context is made";
  EXPECT_EQ(DecideControl(0xa06c0101, {0}).action, Action::kAnswer);
}

TEST(RequestsTest, OrdinaryControlsPass) {
  for (const std::uint32_t command : {0x201u, 0x20800102u, 0xa06c0104u, 0xa06f0103u, 0xc36f0108u, 0x801714u}) {
    EXPECT_EQ(DecideControl(command).action, Action::kPass) << std::hex << command;
  }
}

Decision DecideStop(const abi::DisableChannels& channels, std::size_t bytes = sizeof(abi::DisableChannels)) {
  const abi::Control control{.command = abi::kDisableChannels};
  return Decide(DecodeStruct(abi::kControl, control), std::as_bytes(std::span(&channels, 1)).first(bytes));
}

TEST(RequestsTest, ChannelsAreOnlyEverStopped) {
  EXPECT_EQ(DecideStop({.disable = 1, .channels = 8}).action, Action::kOwnChannels);
  EXPECT_EQ(DecideStop({.disable = 0, .channels = 8}).status, abi::kInsufficientPermissions);
  EXPECT_EQ(DecideStop({.disable = 1, .channels = 65}).status, abi::kInsufficientPermissions);
  EXPECT_EQ(DecideStop({.disable = 1, .channels = 8, .preempt_event = 1}).status, abi::kInsufficientPermissions);
  EXPECT_EQ(DecideStop({.disable = 1, .channels = 8}, 100).status, abi::kInsufficientPermissions);
}

TEST(RequestsTest, ReadsParameters) {
  abi::MemoryParams memory{};
  memory.size = 77;
  EXPECT_EQ(MemoryBytes(std::as_bytes(std::span(&memory, 1))), 77u);
  EXPECT_EQ(MemoryBytes(std::as_bytes(std::span(&memory, 1)).first(71)), 0u);
  const abi::GroupParams group{.engine = 9};
  EXPECT_EQ(Detail(abi::kChannelGroup, std::as_bytes(std::span(&group, 1))), 9u);
  const abi::DeviceParams device{.device = 3};
  EXPECT_EQ(Detail(abi::kDevice, std::as_bytes(std::span(&device, 1))), 3u);
}

}  // namespace
}  // namespace tessera::guard
