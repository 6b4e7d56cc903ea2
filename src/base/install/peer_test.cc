#include "base/install/peer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace tessera {
namespace {

TEST(Peer, ThisUserIsTrusted) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]), two(ends[1]);
  EXPECT_EQ(PeerUser(one.Get()), geteuid());
  EXPECT_TRUE(PeerIsOwn(two.Get()));
  EXPECT_TRUE(PeerIsTrusted(two.Get()));
}

TEST(Peer, OthersAreNot) {
  EXPECT_TRUE(IsTrustedUser(0));
  EXPECT_FALSE(IsTrustedUser(geteuid() + 1));
  EXPECT_FALSE(PeerIsTrusted(STDIN_FILENO)) << "no socket";
  EXPECT_FALSE(PeerIsOwn(-1));
}

}  // namespace
}  // namespace tessera
