#include "base/seqpacket.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/testing/temporary_folder.h"

namespace tessera {
namespace {

class SeqpacketTest : public testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    a_.Reset(pair[0]);
    b_.Reset(pair[1]);
  }
  static std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }
  UniqueFd a_, b_;
  std::array<std::byte, 16> buffer_;
};

TEST_F(SeqpacketTest, KeepsBoundaries) {
  ASSERT_TRUE(SendPacket(a_.Get(), Bytes("one")));
  ASSERT_TRUE(SendPacket(a_.Get(), Bytes("four")));
  EXPECT_EQ(ReceivePacket(b_.Get(), buffer_), 3);
  EXPECT_EQ(ReceivePacket(b_.Get(), buffer_), 4);
}

TEST_F(SeqpacketTest, CarriesADescriptor) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  UniqueFd read_end(pipe_ends[0]), write_end(pipe_ends[1]), received;
  ASSERT_TRUE(SendPacket(a_.Get(), Bytes("x"), write_end.Get()));
  ASSERT_EQ(ReceivePacket(b_.Get(), buffer_, &received), 1);
  ASSERT_TRUE(received);
  EXPECT_EQ(write(received.Get(), "y", 1), 1);
  char c = 0;
  EXPECT_EQ(read(read_end.Get(), &c, 1), 1);
  EXPECT_EQ(c, 'y');
}

TEST_F(SeqpacketTest, CarriesSeveralDescriptorsInOrder) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  UniqueFd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  const int fds[] = {write_end.Get(), read_end.Get()};
  ASSERT_TRUE(SendPacket(a_.Get(), Bytes("x"), fds));
  std::array<UniqueFd, 3> received;
  std::size_t count = 0;
  ASSERT_EQ(ReceivePacket(b_.Get(), buffer_, received, count), 1);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ(write(received[0].Get(), "y", 1), 1);
  char c = 0;
  EXPECT_EQ(read(received[1].Get(), &c, 1), 1);
  EXPECT_EQ(c, 'y');
}

TEST_F(SeqpacketTest, DescriptorsBeyondThoseExpectedAreNotTaken) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  UniqueFd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  const int fds[] = {read_end.Get(), write_end.Get()};
  ASSERT_TRUE(SendPacket(a_.Get(), Bytes("x"), fds));
  write_end.Reset();
  UniqueFd first;
  ASSERT_EQ(ReceivePacket(b_.Get(), buffer_, &first), 1);
  char c = 0;
  EXPECT_EQ(read(read_end.Get(), &c, 1), 0) << "the other end is still open somewhere";
  EXPECT_GT(first.Get(), 0);
}

TEST_F(SeqpacketTest, TooManyDescriptorsAreRefused) {
  const std::array<int, kMostDescriptors + 1> fds{};
  EXPECT_FALSE(SendPacket(a_.Get(), Bytes("x"), fds));
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(SeqpacketTest, TooLongIsAnError) {
  ASSERT_TRUE(SendPacket(a_.Get(), Bytes("more than sixteen bytes")));
  EXPECT_EQ(ReceivePacket(b_.Get(), buffer_), -1);
  EXPECT_EQ(errno, EMSGSIZE);
}

TEST_F(SeqpacketTest, AClosedPeerIsZeroAndNoSignal) {
  b_.Reset();
  EXPECT_EQ(ReceivePacket(a_.Get(), buffer_), 0);
  EXPECT_FALSE(SendPacket(a_.Get(), Bytes("x")));
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(SeqpacketTest, ConnectSaysWhy) {
  EXPECT_FALSE(ConnectSeqpacket("/nonexistent/socket"));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(ConnectSeqpacket(std::string(200, 'x').c_str()));
  EXPECT_EQ(errno, ENAMETOOLONG);
}

TEST_F(SeqpacketTest, ListensForThisUserInPlaceOfWhatIsThere) {
  const TemporaryFolder folder;
  const std::string path = folder.File("socket", "");
  const UniqueFd listener = ListenSeqpacket(path.c_str(), 1);
  ASSERT_TRUE(listener);
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, mode_t{S_IFSOCK | 0600});
  EXPECT_TRUE(ConnectSeqpacket(path.c_str()));
}

TEST_F(SeqpacketTest, ListenSaysWhy) {
  EXPECT_FALSE(ListenSeqpacket("/nonexistent/socket", 1));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(ListenSeqpacket(std::string(200, 'x').c_str(), 1));
  EXPECT_EQ(errno, ENAMETOOLONG);
}

}  // namespace
}  // namespace tessera
