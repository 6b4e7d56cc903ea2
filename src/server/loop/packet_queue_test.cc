#include "server/loop/packet_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/seqpacket.h"

namespace tessera::server {
namespace {

class PacketQueueTest : public testing::Test {
 protected:
  PacketQueueTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    own_.Reset(ends[0]);
    peer_.Reset(ends[1]);
    queue_ = std::make_unique<PacketQueue>(*loop_, own_.Get());
  }
  bool Send(int fd = -1) {
    return queue_->Send(packet_, fd, [this](int error) { outcomes_.push_back(error); });
  }
  void RunFor(Nanos time) {
    EventLoop::Timer end(*loop_, [this] { loop_->Stop(); });
    end.ArmIn(time);
    EXPECT_TRUE(loop_->Run());
  }
  // So many went into the socket.
  std::size_t FillUp() {
    while (queue_->StuckSince() == kNever) EXPECT_TRUE(Send());
    return std::exchange(outcomes_, {}).size();
  }

  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::Create());
  UniqueFd own_, peer_;
  const std::vector<std::byte> packet_{8};
  std::vector<int> outcomes_;
  std::unique_ptr<PacketQueue> queue_;
};

TEST_F(PacketQueueTest, WhatWaitsIsSentWithItsDescriptor) {
  std::size_t sent = FillUp();
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
  EXPECT_TRUE(Send(memory.Get()));
  EXPECT_TRUE(outcomes_.empty());
  std::vector<std::byte> packet(8);
  for (; sent > 0; --sent) EXPECT_GT(ReceivePacket(peer_.Get(), packet), 0);
  RunFor(50 * kMillisecond);
  EXPECT_EQ(outcomes_, (std::vector{0, 0}));
  EXPECT_EQ(queue_->StuckSince(), kNever);
  UniqueFd fd;
  EXPECT_GT(ReceivePacket(peer_.Get(), packet, &fd), 0);
  EXPECT_FALSE(fd);
  EXPECT_GT(ReceivePacket(peer_.Get(), packet, &fd), 0);
  EXPECT_TRUE(fd);
}

TEST_F(PacketQueueTest, WithoutItsDescriptorAPacketIsNotSent) {
  FillUp();
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next(fcntl(memory.Get(), F_DUPFD_CLOEXEC, 0));
  const rlimit full = {.rlim_cur = static_cast<rlim_t>(next.Get()), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  const bool sent = Send(memory.Get());
  const int error = errno;
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(sent);
  EXPECT_EQ(error, EMFILE);
  EXPECT_TRUE(outcomes_.empty());
  EXPECT_TRUE(Send(memory.Get())) << "others go on";
}

TEST_F(PacketQueueTest, WhatWaitsForAPeerThatEndsIsToldSo) {
  FillUp();
  EXPECT_TRUE(Send());
  peer_.Reset();
  RunFor(50 * kMillisecond);
  EXPECT_EQ(outcomes_, (std::vector{ECONNRESET, EPIPE}));
}

}  // namespace
}  // namespace tessera::server
