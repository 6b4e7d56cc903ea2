#include "guard/watch/watch_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "channel/rm/driver_abi.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;
using testing::ElementsAre;
using Kind = WatchEvent::Kind;

constexpr std::uint32_t kGpuDevice = 0x5c000001, kGroup = 0x5c000010, kHopperChannel = 0xc86f;

WatchEvent Of(pid_t pid, Kind kind, std::uint32_t client, std::uint32_t object) {
  WatchEvent event;
  event.kind = kind;
  event.pid = event.host_pid = pid;
  event.name = "program";
  event.fd = 9;
  event.client = client;
  event.object = object;
  return event;
}

WatchEvent Alloc(pid_t pid, std::uint32_t client, std::uint32_t parent, std::uint32_t object, std::uint32_t cls,
                 std::uint64_t bytes = 0) {
  WatchEvent event = Of(pid, Kind::kAlloc, client, object);
  event.parent = parent;
  event.cls = cls;
  event.bytes = bytes;
  return event;
}

class WatchTableTest : public testing::Test {
 protected:
  // A program as CUDA makes it: a client, its device, 100 bytes.
  void Begin(pid_t pid, std::uint32_t client) {
    table_.Apply(Alloc(pid, client, 0, client, abi::kRootClient));
    table_.Apply(Alloc(pid, client, client, kGpuDevice, abi::kDevice));
    table_.Apply(Alloc(pid, client, kGpuDevice, 0x10, abi::kMemoryLocal, 100));
  }

  WatchTable table_;
};

TEST_F(WatchTableTest, KnowsAProgramFromItsFirstClient) {
  EXPECT_EQ(table_.Find(7), nullptr);
  Begin(7, 0xc1);
  const WatchedProcess* process = table_.Find(7);
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->pid, 7);
  EXPECT_EQ(process->name, "program");
  EXPECT_TRUE(process->complete);
  EXPECT_EQ(process->memory.Bytes(), 100);
  EXPECT_EQ(process->objects.Channels(), 0);
}

TEST_F(WatchTableTest, ItsChannelsAreItsGroups) {
  Begin(7, 0xc1);
  WatchEvent group = Alloc(7, 0xc1, kGpuDevice, kGroup, abi::kChannelGroup);
  group.detail = abi::kEngineGraphics;
  table_.Apply(group);
  table_.Apply(Alloc(7, 0xc1, kGroup, 0x20, kHopperChannel));
  table_.Apply(Alloc(7, 0xc1, kGroup, 0x21, kHopperChannel));
  const auto groups = table_.Find(7)->objects.Groups(0);
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0].handle, kGroup);
  EXPECT_EQ(groups[0].fd, 9);
  EXPECT_EQ(groups[0].engine, abi::kEngineGraphics);
  EXPECT_THAT(groups[0].channels, ElementsAre(0x20, 0x21));

  table_.Apply(Of(7, Kind::kFree, 0xc1, 0xc1));
  EXPECT_TRUE(table_.Find(7)->objects.Empty());
  EXPECT_EQ(table_.Find(7)->memory.Bytes(), 0);
  EXPECT_NE(table_.Find(7), nullptr);  // until it exits
}

TEST_F(WatchTableTest, ForgetsAProgramThatEnds) {
  Begin(7, 0xc1);
  Begin(8, 0xc2);
  table_.Apply(Of(7, Kind::kExit, 0, 0));
  EXPECT_EQ(table_.Find(7), nullptr);
  EXPECT_NE(table_.Find(8), nullptr);
  table_.Apply(Of(9, Kind::kExit, 0, 0));
  table_.Remove(8);
  EXPECT_EQ(table_.Size(), 0);
}

TEST_F(WatchTableTest, APidThatIsUsedAgainIsAnotherProgram) {
  Begin(7, 0xc1);
  table_.Apply(Of(7, Kind::kExit, 0, 0));
  table_.Apply(Alloc(7, 0xc2, 0, 0xc2, abi::kRoot));
  EXPECT_EQ(table_.Find(7)->memory.Bytes(), 0);
  EXPECT_TRUE(table_.Find(7)->complete);
}

TEST_F(WatchTableTest, WhoBeganBeforeTheWatchIsIncomplete) {
  WatchEvent existing = Of(7, Kind::kExisting, 0, 0);
  table_.Apply(existing);
  EXPECT_FALSE(table_.Find(7)->complete);
  Begin(7, 0xc1);  // one client more
  EXPECT_FALSE(table_.Find(7)->complete);
  EXPECT_EQ(table_.Find(7)->memory.Bytes(), 100);

  table_.Apply(Alloc(8, 0xc2, kGpuDevice, 0x10, abi::kMemoryLocal, 5));  // not found by the scan
  EXPECT_FALSE(table_.Find(8)->complete);
  table_.Apply(Of(9, Kind::kFree, 0xc3, 0x10));
  EXPECT_FALSE(table_.Find(9)->complete);
}

TEST_F(WatchTableTest, AfterALossNobodyIsComplete) {
  Begin(7, 0xc1);
  Begin(8, 0xc2);
  WatchEvent lost;
  lost.kind = Kind::kLost;
  lost.lost = 3;
  table_.Apply(lost);
  EXPECT_FALSE(table_.Find(7)->complete);
  EXPECT_FALSE(table_.Find(8)->complete);
  EXPECT_EQ(table_.Find(8)->memory.Bytes(), 100);
  Begin(9, 0xc3);
  EXPECT_TRUE(table_.Find(9)->complete);
}

TEST_F(WatchTableTest, ADuplicateOfMemoryKeepsIt) {
  Begin(7, 0xc1);
  Begin(8, 0xc2);
  WatchEvent dup = Of(7, Kind::kDup, 0xc1, 0x30);
  dup.parent = kGpuDevice;
  dup.source_client = 0xc1;
  dup.source_object = 0x10;
  table_.Apply(dup);
  EXPECT_EQ(table_.Find(7)->memory.Bytes(), 100);

  dup.pid = dup.host_pid = 8;  // the other process shares it now
  dup.client = 0xc2;
  table_.Apply(dup);
  EXPECT_EQ(table_.Find(8)->memory.Bytes(), 200);

  table_.Apply(Of(7, Kind::kFree, 0xc1, 0x10));
  EXPECT_EQ(table_.Find(7)->memory.Bytes(), 100);
  table_.Apply(Of(7, Kind::kExit, 0, 0));
  EXPECT_EQ(table_.Find(8)->memory.Bytes(), 200);
  table_.Apply(Of(8, Kind::kFree, 0xc2, 0x30));
  EXPECT_EQ(table_.Find(8)->memory.Bytes(), 100);
}

TEST_F(WatchTableTest, ADuplicateOfSomethingElseIsNoMemory) {
  Begin(7, 0xc1);
  WatchEvent dup = Of(7, Kind::kDup, 0xc1, 0x30);
  dup.source_client = 0xc9;
  dup.source_object = 0x77;
  table_.Apply(dup);
  EXPECT_EQ(table_.Find(7)->memory.Bytes(), 100);
  EXPECT_TRUE(table_.Find(7)->complete);
}

TEST_F(WatchTableTest, WhatOneProcessFreesOthersKeep) {
  Begin(7, 0xc1);
  Begin(8, 0xc2);
  table_.Apply(Of(8, Kind::kFree, 0xc1, 0xc1));
  EXPECT_EQ(table_.Find(7)->memory.Bytes(), 100);
}

TEST_F(WatchTableTest, TooMuchMemoryIsIncomplete) {
  Begin(7, 0xc1);
  for (std::uint32_t i = 0; i < WatchedMemory::kMostObjects; ++i)
    table_.Apply(Alloc(7, 0xc1, kGpuDevice, 0x1000 + i, abi::kMemoryLocal, 1));
  EXPECT_FALSE(table_.Find(7)->complete);
  EXPECT_EQ(table_.Find(7)->memory.Objects(), WatchedMemory::kMostObjects);
}

TEST_F(WatchTableTest, ProcessesOfOtherNamespacesAreToldApart) {
  WatchEvent inside = Alloc(0, 0xc1, 0, 0xc1, abi::kRoot);
  inside.host_pid = 7000;
  table_.Apply(inside);
  inside.host_pid = 7;
  table_.Apply(inside);
  Begin(7, 0xc2);  // ours, with another pid of the host
  EXPECT_EQ(table_.Size(), 3);
  EXPECT_EQ(table_.Find(0), nullptr);
  const auto all = table_.All();
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[0]->pid, 7);
  EXPECT_EQ(all[1]->host_pid, 7);
  EXPECT_EQ(all[2]->host_pid, 7000);
  inside.kind = Kind::kExit;
  table_.Apply(inside);
  EXPECT_EQ(table_.All().back()->host_pid, 7000);
}

}  // namespace
}  // namespace tessera::guard
