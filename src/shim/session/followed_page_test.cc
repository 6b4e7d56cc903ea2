#include "shim/session/followed_page.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "wire/protocol.h"

namespace tessera::shim {
namespace {

class FollowedPageTest : public testing::Test {
 protected:
  FollowedPageTest() {
    const MutexLock lock(page.holding);
    page.Follow(&shared, 3);
  }
  // A descriptor of a page as a daemon makes it, with `change` in it.
  template <typename Change>
  UniqueFd Descriptor(Change change) {
    UniqueFd fd(memfd_create("page", MFD_CLOEXEC));
    wire::Page made;
    made.version = 0xffff;
    change(made);
    EXPECT_EQ(ftruncate(fd.Get(), wire::kPageBytes), 0);
    EXPECT_EQ(pwrite(fd.Get(), static_cast<const void*>(&made), sizeof made, 0), ssize_t{sizeof made});
    return fd;
  }

  wire::Page shared;
  FollowedPage page;
};

TEST_F(FollowedPageTest, FollowsWhatItIsTold) {
  EXPECT_EQ(page.Get(), &shared);
  EXPECT_EQ(page.Gpu(), 3u);
  EXPECT_FALSE(page.FollowsOwn());
}

TEST_F(FollowedPageTest, ItsOwnPageSaysOfMemoryWhatTheDaemonsSaid) {
  shared.memory_max = 10;
  shared.memory_available = 4;
  shared.memory_credit = 3;
  const MutexLock lock(page.holding);
  page.FollowOwn(7, false);
  EXPECT_TRUE(page.FollowsOwn());
  EXPECT_EQ(page->memory_max, 10u);
  EXPECT_EQ(page->memory_available, 4u);
  EXPECT_EQ(page->memory_credit, 3);
  EXPECT_EQ(page->memory_returned, 7u);
  EXPECT_EQ(page->gate, wire::GateOrder::kOpen);
  EXPECT_GT(page->memory_credit_keep, std::uint64_t{1} << 60) << "nothing is to be returned to nobody";
}

TEST_F(FollowedPageTest, AVgpuThatWasRemovedIsSoOnEveryLaterPage) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(page.Removed());
  shared.removed = 1;
  wire::Page next;
  const MutexLock lock(page.holding);
  page.Follow(&next, 4);
  EXPECT_TRUE(page.Removed());
  page.FollowOwn(0, false);
  EXPECT_TRUE(page.Removed());
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tessera: the program's vGPU on GPU 3 was removed: all work that it gives the GPU is refused (CUDA error "
            "46)\n");
}

TEST_F(FollowedPageTest, WithoutADaemonAVgpuThatWasRemovedIsKnown) {
  shared.removed = 1;
  const MutexLock lock(page.holding);
  page.FollowOwn(0, false);
  EXPECT_TRUE(page.Removed());
}

TEST_F(FollowedPageTest, ItsOwnPageMayBeClosedForGood) {
  const MutexLock lock(page.holding);
  page.FollowOwn(0, true);
  EXPECT_EQ(page->gate, wire::GateOrder::kClosed);
  const std::uint32_t epoch = page->epoch;
  page.OpenOwn();
  EXPECT_EQ(page->gate, wire::GateOrder::kOpen);
  EXPECT_NE(page->epoch, epoch);
}

TEST_F(FollowedPageTest, ARingWakesWhoWaits) {
  const std::uint32_t bell = page.Bell();
  std::thread waits([&] {
    while (page.Bell() == bell) page.WaitForRing(bell, kSecond);
  });
  page.Ring();
  waits.join();
  EXPECT_EQ(shared.doorbell, bell + 1);
}

TEST_F(FollowedPageTest, ABellThatRangAlreadyIsNotWaitedFor) {
  const std::uint32_t bell = page.Bell();
  page.Ring();
  page.WaitForRing(bell, kNever / 2);
}

TEST_F(FollowedPageTest, APageOfAnotherLayoutIsRefused) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(FollowedPage::Map(Descriptor([](wire::Page&) {})), nullptr);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("one version of Tessera"), std::string::npos);
}

TEST_F(FollowedPageTest, ADaemonsPageIsMapped) {
  wire::Page* mapped = FollowedPage::Map(Descriptor([](wire::Page& made) {
    made.version = wire::kProtocolVersion;
    made.memory_max = 17;
  }));
  ASSERT_NE(mapped, nullptr);
  EXPECT_EQ(mapped->memory_max, 17u);
  munmap(mapped, wire::kPageBytes);
}

TEST_F(FollowedPageTest, WhatCannotBeMappedIsRefused) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(FollowedPage::Map(UniqueFd()), nullptr);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot map"), std::string::npos);
}

TEST_F(FollowedPageTest, AChildHasNothingOfTheParentsPage) {
  page.AbandonAfterFork();
  EXPECT_TRUE(page.FollowsOwn());
}

}  // namespace
}  // namespace tessera::shim
