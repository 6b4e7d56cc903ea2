#include "face/http/peer_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::face {
namespace {

class PeerStreamTest : public testing::Test {
 protected:
  static constexpr Nanos kLongest = 50 * kMillisecond;

  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    peer_.Reset(ends[0]);
    stream_.emplace(UniqueFd(ends[1]), stop_.Get(), kLongest);
  }
  static void Pass() { std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kLongest)); }
  void Ask() { EXPECT_EQ(send(peer_.Get(), "ask", 3, 0), 3); }
  std::string Read() {
    char text[16];
    const ssize_t length = stream_->read(text, sizeof text);
    return length > 0 ? std::string(text, static_cast<std::size_t>(length)) : "";
  }

  UniqueFd stop_{eventfd(0, EFD_CLOEXEC)}, peer_;
  std::optional<PeerStream> stream_;
};

TEST_F(PeerStreamTest, TheAnswerHasTimeOfItsOwn) {
  Ask();
  EXPECT_EQ(Read(), "ask");
  Pass();
  EXPECT_EQ(stream_->write("answer", 6), 6);
  EXPECT_EQ(stream_->write("more", 4), 4);
}

TEST_F(PeerStreamTest, WhoAsksLateIsNotHeard) {
  Pass();
  Ask();
  EXPECT_EQ(Read(), "");
}

TEST_F(PeerStreamTest, WhoDoesNotTakeTheAnswerIsLeft) {
  const std::string answer(1 << 20, 'a');
  EXPECT_EQ(stream_->write(answer.data(), answer.size()), -1);
}

TEST_F(PeerStreamTest, AnswersLargerThanTheSocketsBufferAreWrittenWhole) {
  stream_.emplace(std::move(*stream_).Release(), stop_.Get());
  const std::string answer(4 << 20, 'a');
  std::size_t read = 0;
  std::thread reader([&] {
    std::vector<char> some(1 << 16);
    while (read < answer.size()) {
      pollfd ready{.fd = peer_.Get(), .events = POLLIN};
      if (poll(&ready, 1, 30'000) != 1) return;
      read += static_cast<std::size_t>(std::max<ssize_t>(recv(peer_.Get(), some.data(), some.size(), 0), 0));
    }
  });
  EXPECT_EQ(stream_->write(answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
  reader.join();
  EXPECT_EQ(read, answer.size());
}

TEST_F(PeerStreamTest, ADaemonThatEndsWaitsForNobody) {
  Ask();
  eventfd_write(stop_.Get(), 1);
  EXPECT_EQ(Read(), "");
  EXPECT_EQ(stream_->write("answer", 6), -1);
}

}  // namespace
}  // namespace tessera::face
