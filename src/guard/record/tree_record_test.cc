#include "guard/record/tree_record.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "base/process/process_start.h"

namespace tessera::guard {
namespace {

TreeRecord Copy(const TreeRecord& record) { return std::move(*TreeRecord::Open(UniqueFd(dup(record.Fd())))); }

std::set<std::tuple<pid_t, std::uint32_t, std::uint64_t>> Paid(const MemoryObjects& objects) {
  std::set<std::tuple<pid_t, std::uint32_t, std::uint64_t>> paid;
  for (const auto& each : objects.Payments()) paid.emplace(each.process, each.device, each.bytes);
  return paid;
}

TEST(TreeRecord, SaysWhoseItIs) {
  const auto record = TreeRecord::Create({.vgpus = "a,b", .name = std::string(100, 'x'), .pid = 7});
  const auto owner = Copy(*record).Owner();
  EXPECT_EQ(owner.vgpus, "a,b");
  EXPECT_EQ(owner.name, std::string(63, 'x'));
  EXPECT_EQ(owner.pid, 7);
}

TEST(TreeRecord, IsToldOfOtherVGpusByItsDescriptor) {
  const auto record = TreeRecord::Create({.vgpus = "a,b", .name = "x", .pid = 7, .uid = 8, .by_operator = true});
  ASSERT_TRUE(TreeRecord::SetVGpus(record->Fd(), "b"));
  EXPECT_EQ(record->Owner().vgpus, "b");
  ASSERT_TRUE(TreeRecord::SetVGpus(record->Fd(), ""));
  const auto owner = Copy(*record).Owner();
  EXPECT_EQ(owner.vgpus, "");
  EXPECT_EQ(owner.name, "x");
  EXPECT_EQ(owner.uid, 8u);
  EXPECT_TRUE(owner.by_operator);
}

TEST(TreeRecord, KnowsAClientsProcessFromALaterOneOfItsPid) {
  auto record = TreeRecord::Create({});
  const std::uint64_t start = *ProcessStart(getpid());
  for (const std::uint64_t each : {start, start + 1, std::uint64_t{0}})
    record->Put({.client = static_cast<std::uint32_t>(1 + each - start),
                 .process = getpid(),
                 .holder = getpid(),
                 .fd = 3,
                 .start = each});
  const auto clients = Copy(*record).Clients();
  ASSERT_EQ(clients.size(), 3u);
  EXPECT_TRUE(clients[0].Lives());
  EXPECT_FALSE(clients[1].Lives());
  EXPECT_TRUE(clients[2].Lives()) << "its start is not known";
}

TEST(TreeRecord, ThatOfAnotherVersionIsNotRead) {
  EXPECT_EQ(TreeRecord::Open(UniqueFd(memfd_create("empty", MFD_CLOEXEC))).error().code, EPROTO);
  const UniqueFd other(memfd_create("other", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(other.Get(), 1 << 20), 0);
  EXPECT_EQ(TreeRecord::Open(UniqueFd(dup(other.Get()))).error().code, EPROTO);
}

TEST(TreeRecord, AClientsLastHolderCounts) {
  auto record = TreeRecord::Create({});
  record->Put({.client = 1, .process = 10, .holder = 10, .fd = 3});
  record->Put({.client = 1, .process = 11, .holder = 12, .fd = 4});
  const auto clients = Copy(*record).Clients();
  ASSERT_EQ(clients.size(), 1u);
  EXPECT_EQ(clients[0].process, 11);
  EXPECT_EQ(clients[0].holder, 12);
  EXPECT_EQ(clients[0].fd, 4);
}

TEST(TreeRecord, WhatWasToldComesBack) {
  auto record = TreeRecord::Create({});
  MemoryObjects objects(&*record);
  record->Put({.client = 1, .process = 10, .holder = 10, .fd = 3});
  objects.SetClient(1, 10);
  objects.Add(1, 1, 0x80, 0, 2);
  record->Tell(1, 0x80, {.fd = 3, .cls = 0x80, .detail = 2});
  const auto copies = Copy(*record).Objects();
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].entry.device, 2u);
  EXPECT_EQ(copies[0].told.cls, 0x80u);
  EXPECT_EQ(copies[0].told.detail, 2u);
}

// After any history, the record gives the same account as the one that was recorded, as far as frees and charges go.
TEST(TreeRecord, RestoresTheAccount) {
  rc::check([] {
    auto record = TreeRecord::Create({});
    MemoryObjects objects(&*record);
    const auto pick = [](std::uint32_t below) { return *rc::gen::inRange<std::uint32_t>(0, below); };
    for (std::uint32_t client = 1; client <= 3; ++client) {
      record->Put({.client = client, .process = static_cast<pid_t>(client), .holder = 1, .fd = 3});
      objects.SetClient(client, static_cast<pid_t>(client));
    }
    const auto steps = pick(600);
    for (std::uint32_t step = 0; step < steps; ++step) {
      const std::uint32_t client = 1 + pick(3), object = 100 + pick(400), parent = 100 + pick(400);
      switch (pick(4)) {
        case 0:
          objects.Free(client, object);
          break;
        case 1:
          objects.Dup(client, parent, object, 1 + pick(3), 100 + pick(400));
          break;
        default:
          objects.Add(client, parent, object, pick(3) == 0 ? 0 : 1 + pick(1000), pick(3));
      }
    }
    MemoryObjects restored;
    const TreeRecord copy = Copy(*record);
    copy.Restore(restored);
    RC_ASSERT(restored.Objects() == objects.Objects());
    RC_ASSERT(restored.Memories() == objects.Memories());
    std::uint64_t all = 0, again = 0;
    for (const auto& [process, device, bytes] : Paid(objects)) all += bytes;
    for (const auto& [process, device, bytes] : Paid(restored)) again += bytes;
    RC_ASSERT(all == again);
    for (std::uint32_t client = 1; client <= 3; ++client) {
      for (std::uint32_t object = 100; object < 500; ++object) {
        RC_ASSERT(restored.Knows(client, object) == objects.Knows(client, object));
        RC_ASSERT(restored.HoldsMemory(client, object) == objects.HoldsMemory(client, object));
        RC_ASSERT(restored.DeviceOf(client, object) == objects.DeviceOf(client, object));
      }
    }
    // And goes on alike.
    for (std::uint32_t client = 1; client <= 3; ++client) restored.Free(client, client);
    RC_ASSERT(restored.Memories() == 0u);
    RC_ASSERT(restored.Payments().empty());
  });
}

}  // namespace
}  // namespace tessera::guard
