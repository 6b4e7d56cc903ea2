// A process that becomes a client of MPS, with a control daemon that answers as the test says.
#include "soft/mps/mps_client.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "base/seqpacket.h"
#include "base/testing/comma_locale.h"
#include "base/testing/temporary_folder.h"
#include "soft/mps/mps_directory.h"
#include "soft/shared/mps_servers.h"
#include "soft/shared/shared_layout.h"
#include "soft/shared/test_process.h"

namespace tessera::soft {
namespace {

using namespace cuda;  // NOLINT: the driver's own names

class MpsClientTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv(kMpsPipeVariable, folder_.path().c_str(), 1);
    BecomeMpsServer(*state_, 100);
  }
  void TearDown() override {
    unsetenv(kMpsPipeVariable);
    unsetenv(kMpsPercentageVariable);
  }

  // What a process gets whose daemon answers that; none: it hangs up. `then` looks at what the process is after it.
  void Gets(const std::optional<std::string>& answer, CUresult expected,
            const std::function<void(SharedState&)>& then = {}) {
    const UniqueFd listener = ListenSeqpacket(MpsSocketIn(folder_.path()).c_str(), 1);
    ASSERT_TRUE(listener);
    TestProcess program([&](TestProcess::Peer&) {
      const auto mine = MustAttach(scratch_.path(), kSpec);
      EXPECT_EQ(JoinMps(*mine), expected) << answer.value_or("(no answer)");
      EXPECT_EQ(IsMpsClient(*mine), expected == CUDA_SUCCESS) << answer.value_or("(no answer)");
      if (then) then(*mine);
    });
    {
      const UniqueFd connection(accept4(listener.Get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::byte request[64];
      EXPECT_EQ(ReceivePacket(connection.Get(), request), ssize_t(std::strlen(kConnectRequest)));
      if (answer) EXPECT_TRUE(SendPacket(connection.Get(), std::as_bytes(std::span(*answer))));
    }
    EXPECT_EQ(program.Wait(), 0) << answer.value_or("(no answer)");
  }
  // The answer of a daemon whose server the test is.
  std::string Server() const {
    const ProcessId& server = state_->slot().process;
    return "server " + std::to_string(server.pid) + " " + std::to_string(server.pid_namespace) + " " +
           std::to_string(server.start_time);
  }

  static constexpr const char* kSpec = "1GiB,sms=132";
  const ScratchState scratch_;
  const std::unique_ptr<SharedState> state_ = MustAttach(scratch_.path(), kSpec);
  const TemporaryFolder folder_;
};

TEST_F(MpsClientTest, WhereNoDaemonListensItIsNoClient) {
  for (const std::string& directory :
       {std::string(), folder_.path(), std::string("/nonexistent"), std::string(4096, 'd')}) {
    setenv(kMpsPipeVariable, directory.c_str(), 1);
    EXPECT_EQ(JoinMps(*state_), CUDA_SUCCESS) << directory;
  }
  unsetenv(kMpsPipeVariable);
  EXPECT_EQ(JoinMps(*state_), CUDA_SUCCESS);
}

TEST_F(MpsClientTest, ItJoinsTheServerThatIsNamed) {
  Gets(Server(), CUDA_SUCCESS, [](SharedState& mine) { EXPECT_EQ(UsableMultiprocessors(mine), 132u); });
}

TEST_F(MpsClientTest, ARefusalIsTheDriversError) {
  Gets("refused 807", CUDA_ERROR_MPS_SERVER_NOT_READY);
  Gets("refused 805", CUDA_ERROR_MPS_CONNECTION_FAILED);
}

// Else it would run outside of MPS and believe that it is inside.
TEST_F(MpsClientTest, ARefusalIsNeverASuccess) {
  for (const char* answer : {"refused 0", "refused -1", "refused", "refused ", "refused x"})
    Gets(answer, CUDA_ERROR_MPS_CONNECTION_FAILED);
}

TEST_F(MpsClientTest, WhatIsNoAnswerIsAnError) {
  const std::string whole = Server();
  Gets({}, CUDA_ERROR_MPS_CONNECTION_FAILED);
  for (const std::string& answer :
       {std::string(1, '\0'), std::string("nonsense"), std::string("server"), std::string("server x y z"),
        whole.substr(0, whole.rfind(' ')), std::string("server -1 -1 -1"), std::string(127, 's'),
        whole + std::string(200, ' '), std::string(60'000, '9')})
    Gets(answer, CUDA_ERROR_MPS_CONNECTION_FAILED);
}

// As when it ended while the daemon answered.
TEST_F(MpsClientTest, AServerThatIsGoneIsAnError) {
  TestProcess ended([](TestProcess::Peer&) {});
  EXPECT_EQ(ended.Wait(), 0);
  Gets("server " + std::to_string(ended.pid()) + " 0 1", CUDA_ERROR_MPS_CONNECTION_FAILED);
  Gets(Server() + "1", CUDA_ERROR_MPS_CONNECTION_FAILED);  // another process of that pid
}

TEST_F(MpsClientTest, ThePercentageIsReadInEveryLocale) {
  const CommaLocale comma;
  setenv(kMpsPercentageVariable, "33.9", 1);  // 44 SMs; 33 % are 43
  Gets(Server(), CUDA_SUCCESS, [](SharedState& mine) { EXPECT_EQ(UsableMultiprocessors(mine), 44u); });
}

TEST_F(MpsClientTest, APercentageThatIsNoneBoundsNothing) {
  for (const char* text : {"", "nonsense", "0", "-5", "101", "1e99", "nan"}) {
    setenv(kMpsPercentageVariable, text, 1);
    Gets(Server(), CUDA_SUCCESS, [&](SharedState& mine) { EXPECT_EQ(UsableMultiprocessors(mine), 132u) << text; });
  }
}

}  // namespace
}  // namespace tessera::soft
