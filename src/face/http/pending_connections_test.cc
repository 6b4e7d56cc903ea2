#include "face/http/pending_connections.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <string>
#include <vector>

namespace tessera::face {
namespace {

class WaitingRoomTest : public testing::Test {
 protected:
  // A client's end of a connection that waits, if it has not spoken.
  UniqueFd Arrive(const std::string& said = {}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    UniqueFd client(ends[0]);
    Say(client, said);
    room_.Add(UniqueFd(ends[1]));
    return client;
  }
  static void Say(const UniqueFd& client, const std::string& text) {
    ASSERT_EQ(send(client.Get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  static bool IsClosed(const UniqueFd& client) {
    pollfd ready{client.Get(), POLLIN, 0};
    return poll(&ready, 1, 0) == 1 && (ready.revents & POLLHUP) != 0;
  }
  // Waits until so many have been taken, and says what the last of them holds.
  std::string Taken(std::size_t count) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return taken_.size() >= count; })) return "none";
    char text[32 << 10];
    const ssize_t length = recv(taken_[count - 1].Get(), text, sizeof text, 0);
    return length < 0 ? "nothing to read" : std::string(text, static_cast<std::size_t>(length));
  }
  std::size_t TakenNow() {
    const std::lock_guard lock(mutex_);
    return taken_.size();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFd> taken_;
  WaitingRoom room_{[this](UniqueFd socket) {
    const std::lock_guard lock(mutex_);
    taken_.push_back(std::move(socket));
    changed_.notify_all();
  }};
};

TEST_F(WaitingRoomTest, WhoHasSpokenDoesNotWait) {
  const UniqueFd client = Arrive("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(TakenNow(), 1u) << "by the thread that added it";
  EXPECT_EQ(Taken(1), "GET / HTTP/1.1\r\n\r\n");
}

TEST_F(WaitingRoomTest, AHeadThatComesByAndByIsTakenWhole) {
  const UniqueFd client = Arrive("GET / HT");
  for (const char* piece : {"TP/1.1\r", "\nHost: x\r\n", "\r"}) Say(client, piece);
  // Another one that comes and goes says that the room has seen these pieces.
  const UniqueFd other = Arrive();
  Say(other, "\r\n\r\n");
  EXPECT_EQ(Taken(1), "\r\n\r\n");
  EXPECT_EQ(TakenNow(), 1u) << "a head that is not whole is not served";
  Say(client, "\nbody");
  EXPECT_EQ(Taken(2), "GET / HTTP/1.1\r\nHost: x\r\n\r\nbody");
}

TEST_F(WaitingRoomTest, WhoSendsNoMoreIsServedIfItHasSaidAnything) {
  const UniqueFd silent = Arrive();
  shutdown(silent.Get(), SHUT_WR);
  pollfd closed{silent.Get(), POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 20'000), 1) << "who said nothing is closed";
  EXPECT_EQ(TakenNow(), 0u);
  const UniqueFd half = Arrive("GET / HT");
  shutdown(half.Get(), SHUT_WR);
  EXPECT_EQ(Taken(1), "GET / HT") << "it waits for an answer";
}

TEST_F(WaitingRoomTest, MoreThanAHeadHasIsTaken) {
  const UniqueFd client = Arrive(std::string(16 << 10, 'x'));
  EXPECT_EQ(Taken(1).size(), 16u << 10);
}

TEST_F(WaitingRoomTest, TheOldestMakesRoom) {
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < WaitingRoom::kMost; ++i) silent.push_back(Arrive());
  EXPECT_FALSE(IsClosed(silent[0]));
  const UniqueFd late = Arrive();
  EXPECT_TRUE(IsClosed(silent[0]));
  EXPECT_FALSE(IsClosed(silent[1]));
  Say(late, "\r\n\r\n");
  EXPECT_EQ(Taken(1), "\r\n\r\n");
}

}  // namespace
}  // namespace tessera::face
