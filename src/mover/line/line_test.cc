#include "mover/line/line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/seqpacket.h"

namespace tessera::mover {
namespace {

using wire::LineMessage;
using wire::LineType;

class LineTest : public testing::Test {
 protected:
  LineTest() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    program_.Reset(pair[0]);
    line_.emplace(epoll_.Get(), UniqueFd(pair[1]));
  }
  // The mover's reading of a packet of the program's.
  int ErrorOfPacket(const LineMessage& message, std::span<const int> fds = {}) {
    EXPECT_TRUE(SendPacket(program_.Get(), BytesOf(message), fds));
    const auto packet = line_->Receive();
    return packet ? 0 : packet.error().code;
  }

  const UniqueFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  const UniqueFd memory_{memfd_create("memory", MFD_CLOEXEC)}, file_{open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  UniqueFd program_;
  std::optional<Line> line_;
};

TEST_F(LineTest, AMessageComesWithItsDescriptors) {
  EXPECT_EQ(*line_->Receive(), std::nullopt);
  const int fds[] = {memory_.Get(), memory_.Get()};
  ASSERT_TRUE(
      SendPacket(program_.Get(), BytesOf(LineMessage{.type = LineType::kOffer, .count = 2, .chunk = {5, 6}}), fds));
  const auto packet = line_->Receive();
  ASSERT_TRUE(packet && *packet);
  EXPECT_EQ((*packet)->fds.size(), 2u);
  EXPECT_TRUE(Names((*packet)->message, 6));
  EXPECT_FALSE(Names((*packet)->message, 0)) << "it names two";
}

TEST_F(LineTest, OtherDescriptorsThanTheTypeSaysAreWrong) {
  const int memory = memory_.Get(), file = file_.Get();
  EXPECT_EQ(ErrorOfPacket({.type = LineType::kOffer, .count = 1}), EPROTO);
  EXPECT_EQ(ErrorOfPacket({.type = LineType::kFreed, .count = 1}, {&memory, 1}), EPROTO);
  EXPECT_EQ(ErrorOfPacket({.type = LineType::kOffer, .count = 1}, {&file, 1}), EPROTO) << "its close may wait";
  EXPECT_EQ(ErrorOfPacket({.type = LineType::kOffer, .count = 1}, {&memory, 1}), 0);
}

TEST_F(LineTest, EachPieceOfASparseChunkHasADescriptor) {
  const int memory = memory_.Get();
  const LineMessage sparse = {.type = LineType::kWant, .count = 1, .units = {0b1101}, .begins = {0b101}};
  EXPECT_EQ(ErrorOfPacket(sparse, {&memory, 1}), EPROTO);
  const int both[] = {memory, memory};
  EXPECT_EQ(ErrorOfPacket(sparse, both), 0);
}

TEST_F(LineTest, OtherBytesAreWrong) {
  EXPECT_EQ(ErrorOfPacket({.magic = 1, .type = LineType::kSettled}), EPROTO);
  EXPECT_EQ(ErrorOfPacket({.version = 1, .type = LineType::kSettled}), EPROTO);
  EXPECT_EQ(ErrorOfPacket({.type = LineType::kFreed, .count = wire::kMostChunks + 1}), EPROTO);
  EXPECT_TRUE(SendPacket(program_.Get(), std::as_bytes(std::span("short"))));
  EXPECT_EQ(line_->Receive().error().code, EPROTO);
}

// The mover reads what the program said before it hung up, and answering it is no fault.
TEST_F(LineTest, AProgramThatHangsUpIsHeardToTheEnd) {
  ASSERT_TRUE(SendPacket(program_.Get(), BytesOf(LineMessage{.type = LineType::kSettled})));
  program_.Reset();
  line_->Say(LineType::kSettle, {});
  EXPECT_FALSE(line_->broken());
  EXPECT_TRUE(line_->Receive().value());
  EXPECT_EQ(line_->Receive().error().code, EPIPE);
  line_->Close();
  EXPECT_FALSE(line_->open());
}

}  // namespace
}  // namespace tessera::mover
