#include "face/http/user_requests.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

namespace tessera::face {
namespace {

// Each request is a socket, and is being answered until its other end has sent a byte.
class UserRequestsTest : public testing::Test {
 protected:
  UniqueFd Add(uid_t user) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    requests_.Add(user, UniqueFd(ends[1]));
    return UniqueFd(ends[0]);
  }
  static void Finish(const UniqueFd& client) { EXPECT_EQ(write(client.Get(), "x", 1), 1); }
  // Until it began to be answered; false: it was closed unanswered.
  static bool Begins(const UniqueFd& client) {
    char byte = 0;
    return read(client.Get(), &byte, 1) == 1;
  }
  static bool HasBegun(const UniqueFd& client) {
    char byte = 0;
    return recv(client.Get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  }

  UserRequests requests_{2, [](UniqueFd socket) {
                           char byte = 0;
                           EXPECT_EQ(write(socket.Get(), "x", 1), 1);
                           EXPECT_EQ(read(socket.Get(), &byte, 1), 1);
                         }};
};

TEST_F(UserRequestsTest, OneUsersAreAnsweredOneAfterTheOther) {
  const UniqueFd first = Add(1), second = Add(1), others = Add(2);
  EXPECT_TRUE(Begins(first));
  EXPECT_TRUE(Begins(others)) << "a thread is free";
  EXPECT_FALSE(HasBegun(second));
  Finish(others);
  Finish(first);
  EXPECT_TRUE(Begins(second));
  Finish(second);
}

TEST_F(UserRequestsTest, MoreThanAUserMayHaveAreClosed) {
  std::vector<UniqueFd> clients;
  for (std::size_t i = 0; i < UserRequests::kMostOfAUser; ++i) clients.push_back(Add(1));
  EXPECT_FALSE(Begins(Add(1)));
  const UniqueFd others = Add(2);
  EXPECT_TRUE(Begins(others));
  Finish(others);
  for (const UniqueFd& client : clients) {
    EXPECT_TRUE(Begins(client));
    Finish(client);
  }
}

}  // namespace
}  // namespace tessera::face
