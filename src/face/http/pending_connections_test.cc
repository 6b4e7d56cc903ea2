#include "face/http/pending_connections.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/mutex.h"

namespace tessera::face {
namespace {

class PendingConnectionsTest : public testing::Test {
 protected:
  // A client's end of a connection that waits, if it has not spoken.
  UniqueFd Arrive(const std::string& said = {}) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    UniqueFd client(ends[0]);
    Say(client, said);
    pending_.Add(UniqueFd(ends[1]));
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
    const MutexLock lock(mutex_);
    while (taken_.size() < count) changed_.Wait(mutex_);
    char text[32 << 10];
    const ssize_t length = recv(taken_[count - 1].Get(), text, sizeof text, 0);
    return length < 0 ? "nothing to read" : std::string(text, static_cast<std::size_t>(length));
  }
  std::size_t TakenNow() {
    const MutexLock lock(mutex_);
    return taken_.size();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<UniqueFd> taken_ TESSERA_GUARDED_BY(mutex_);
  PendingConnections pending_{[this](UniqueFd socket) {
    const MutexLock lock(mutex_);
    taken_.push_back(std::move(socket));
    changed_.NotifyAll();
  }};
};

TEST_F(PendingConnectionsTest, WhoHasSpokenDoesNotWait) {
  const UniqueFd client = Arrive("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(TakenNow(), 1u) << "by the thread that added it";
  EXPECT_EQ(Taken(1), "GET / HTTP/1.1\r\n\r\n");
}

TEST_F(PendingConnectionsTest, AHeadThatComesByAndByIsTakenWhole) {
  const UniqueFd client = Arrive("GET / HT");
  for (const char* piece : {"TP/1.1\r", "\nHost: x\r\n", "\r"}) Say(client, piece);
  // Another one that comes and goes shows that these pieces were seen.
  const UniqueFd other = Arrive();
  Say(other, "\r\n\r\n");
  EXPECT_EQ(Taken(1), "\r\n\r\n");
  EXPECT_EQ(TakenNow(), 1u) << "a head that is not whole is not served";
  Say(client, "\nbody");
  EXPECT_EQ(Taken(2), "GET / HTTP/1.1\r\nHost: x\r\n\r\nbody");
}

TEST_F(PendingConnectionsTest, WhoSendsNoMoreIsServedIfItHasSaidAnything) {
  const UniqueFd silent = Arrive();
  shutdown(silent.Get(), SHUT_WR);
  pollfd closed{silent.Get(), POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 20'000), 1) << "who said nothing is closed";
  EXPECT_EQ(TakenNow(), 0u);
  const UniqueFd half = Arrive("GET / HT");
  shutdown(half.Get(), SHUT_WR);
  EXPECT_EQ(Taken(1), "GET / HT") << "it waits for an answer";
}

TEST_F(PendingConnectionsTest, MoreThanAHeadHasIsTaken) {
  const UniqueFd client = Arrive(std::string(16 << 10, 'x'));
  EXPECT_EQ(Taken(1).size(), 16u << 10);
}

TEST_F(PendingConnectionsTest, TheOldestMakesRoom) {
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < PendingConnections::kMost; ++i) silent.push_back(Arrive());
  EXPECT_FALSE(IsClosed(silent[0]));
  const UniqueFd late = Arrive();
  EXPECT_TRUE(IsClosed(silent[0]));
  EXPECT_FALSE(IsClosed(silent[1]));
  Say(late, "\r\n\r\n");
  EXPECT_EQ(Taken(1), "\r\n\r\n");
}

}  // namespace
}  // namespace tessera::face
