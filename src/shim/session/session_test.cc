// The session with a daemon that the test ends.
#include "shim/session/session.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <string>
#include <thread>

#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"

namespace tessera::shim {
namespace {

// Welcomes whoever says Hello, and says no more. One at a time.
class FakeDaemon {
 public:
  // Listens when it is made.
  explicit FakeDaemon(const std::string& path) : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(bind(listener_.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.Get(), 4), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeDaemon() {
    shutdown(listener_.Get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  void Serve() {
    for (UniqueFd one;;) {
      one.Reset(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!one) return;
      std::byte packet[wire::kMaxMessageBytes];
      if (ReceivePacket(one.Get(), packet) > 0) SendPacket(one.Get(), wire::BytesOf(wire::Make(wire::Welcome{})));
    }
  }

  UniqueFd listener_;
  std::thread thread_;
};

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    setenv("TESSERA_RUN_DIR", directory_.path().c_str(), 1);
    setenv("TESSERA_VGPU", "team", 1);
  }
  std::string Path() const { return directory_.path() + "/client.sock"; }

  const TemporaryFolder directory_;
};

// There is one session in a process, so this is one test.
TEST_F(SessionTest, ADaemonThatDoesNotAttachAProgramCountsAsGoneStill) {
  Session& session = Session::Instance();
  {
    FakeDaemon daemon(Path());
    ASSERT_EQ(session.Open(), cuda::CUDA_SUCCESS);
    EXPECT_FALSE(session.Lost());
  }
  ASSERT_TRUE(session.Lost());
  const Nanos since = session.LostSince();
  std::filesystem::remove(Path());
  FakeDaemon daemon(Path());
  testing::internal::CaptureStderr();
  int tries = 0;
  while (tries < 3) {
    EXPECT_FALSE(session.Reconnect([&] {
      ++tries;
      session.Complain("no page");
      return false;
    }));
    EXPECT_TRUE(session.Lost());
    EXPECT_EQ(session.LostSince(), since) << "the time of grace goes on";
    EXPECT_FALSE(session.Tell(wire::Make(wire::Return{})));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tessera: no page\n") << "once";
  EXPECT_TRUE(session.Reconnect([&] {
    EXPECT_EQ(session.LostSince(), since) << "other threads find it gone until all is attached";
    return true;
  }));
  EXPECT_FALSE(session.Lost());
  EXPECT_EQ(session.LostSince(), 0);
}

}  // namespace
}  // namespace tessera::shim
