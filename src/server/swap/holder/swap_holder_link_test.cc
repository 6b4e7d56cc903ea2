#include "server/swap/holder/swap_holder_link.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"
#include "wire/line.h"

namespace tessera::server {
namespace {

using wire::SwapHolderMessage;
using wire::SwapHolderType;

UniqueFd Memory() { return UniqueFd(memfd_create("slot", MFD_CLOEXEC)); }

// The link to the holder of an earlier daemon, which is the test. Its folder is gone, so no other holder can be
// started.
class SwapHolderLinkTest : public testing::Test {
 protected:
  SwapHolderLinkTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    holder_.Reset(ends[0]);
    fcntl(holder_.Get(), F_SETFL, O_NONBLOCK);
    link_ = std::make_unique<SwapHolderLink>(*loop_, 0, folder_.path() + "/gone/swap.sock", slots_, file_,
                                             UniqueFd(ends[1]));
    link_->SetMover(getpid(), [this](std::uint64_t number) { kept_.push_back(number); });
  }
  void RunFor(Nanos time) {
    EventLoop::Timer end(*loop_, [this] { loop_->Stop(); });
    end.ArmIn(time);
    EXPECT_TRUE(loop_->Run());
  }
  // All that the holder has been told, by its numbers where it is about slots.
  std::vector<std::pair<SwapHolderType, std::uint64_t>> Heard() {
    std::vector<std::pair<SwapHolderType, std::uint64_t>> heard;
    while (true) {
      std::byte packet[sizeof(SwapHolderMessage)];
      UniqueFd fd;
      if (ReceivePacket(holder_.Get(), packet, &fd) <= 0) return heard;
      const auto message = wire::ReadSwapHolder(packet);
      heard.emplace_back(message->type, message->number);
      EXPECT_EQ(static_cast<bool>(fd), message->type != SwapHolderType::kSlotGone);
    }
  }

  const TemporaryFolder folder_;
  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::Create());
  SwapSlots slots_ = std::move(*SwapSlots::Make(8 * wire::kChunkBytes));
  const SwapFile file_;
  UniqueFd holder_;
  std::vector<std::uint64_t> kept_;
  std::unique_ptr<SwapHolderLink> link_;
};

TEST_F(SwapHolderLinkTest, ASlotIsKeptWhenTheHolderHasIt) {
  link_->Keep(3, Memory());
  EXPECT_EQ(kept_, std::vector<std::uint64_t>{3});
  link_->Forget(3);
  EXPECT_EQ(Heard(), (std::vector<std::pair<SwapHolderType, std::uint64_t>>{
                         {SwapHolderType::kSlotsTable, wire::kHandoverVersion},
                         {SwapHolderType::kMover, 0},
                         {SwapHolderType::kSlot, 3},
                         {SwapHolderType::kSlotGone, 3}}));
  EXPECT_EQ(slots_.count(), 0u);
}

TEST_F(SwapHolderLinkTest, ASlotThatCannotBeKeptIsUsedAllTheSame) {
  link_->Keep(3, UniqueFd());  // its descriptor did not arrive
  EXPECT_EQ(kept_, std::vector<std::uint64_t>{3});
  EXPECT_EQ(slots_.count(), 0u);
}

TEST_F(SwapHolderLinkTest, WhatAHolderDoesNotReadWaits) {
  std::uint64_t number = 0;
  while (kept_.size() == number) link_->Keep(++number, Memory());
  link_->Keep(++number, Memory());
  EXPECT_EQ(kept_.size(), number - 2);
  EXPECT_EQ(Heard().size(), 2 + number - 2);
  RunFor(100 * kMillisecond);
  std::vector<std::uint64_t> all(number);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(kept_, all);
  EXPECT_EQ(Heard().size(), 2u);
}

TEST_F(SwapHolderLinkTest, ASlotThatCannotBeGivenIsUsedAllTheSameAndTheLogSaysSo) {
  constexpr std::uint64_t kGone = 2000;  // more than its socket takes
  for (std::uint64_t number = 1; number <= kGone; ++number) link_->Forget(number);
  UniqueFd memory = Memory();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next(fcntl(memory.Get(), F_DUPFD_CLOEXEC, 0));
  const rlimit full = {.rlim_cur = static_cast<rlim_t>(next.Get()), .rlim_max = before.rlim_max};
  testing::internal::CaptureStdout();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  link_->Keep(3, std::move(memory));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(kept_, std::vector<std::uint64_t>{3});
  EXPECT_EQ(slots_.count(), 1u) << "for the next mover, and the next holder";
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("could be given to the swap holder"));
}

TEST_F(SwapHolderLinkTest, WithoutAHolderAllSlotsAreUsed) {
  std::uint64_t number = 0;
  while (kept_.size() == number) link_->Keep(++number, Memory());
  holder_.Reset();
  RunFor(100 * kMillisecond);
  EXPECT_EQ(kept_.size(), number) << "what waited does not wait for ever";
  link_->Keep(++number, Memory());
  EXPECT_EQ(kept_.size(), number);
  EXPECT_EQ(slots_.count(), number) << "for the next mover, and the next holder";
}

}  // namespace
}  // namespace tessera::server
