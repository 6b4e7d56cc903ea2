// Programs as clients of MPS, with the stand-in of the control daemon.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/testing/temporary_folder.h"
#include "base/testing/wait_until.h"
#include "soft/testing/test_api.h"
#include "soft/testing/test_peer.h"

namespace tessera::soft {
namespace {

class ApiMps : public testing::Test {
 protected:
  void SetUp() override {
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.path().c_str(), 1);
    ASSERT_EQ(std::system(TESSERA_SOFT_MPS_CONTROL " -d"), 0);
  }
  void TearDown() override {
    Tell("quit -t 0");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/control"));
  }

  // The answer to commands, without the last end of line.
  static std::string Tell(const std::string& commands) {
    const std::string line = "echo '" + commands + "' | " TESSERA_SOFT_MPS_CONTROL " 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> answer(popen(line.c_str(), "r"), pclose);
    std::string text;
    for (int c = 0; answer && (c = std::fgetc(answer.get())) != EOF;) text += static_cast<char>(c);
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }
  static std::string Server() { return Tell("get_server_list"); }

  const TemporaryFolder folder_;
};

TEST_F(ApiMps, TheFirstClientStartsAServer) {
  EXPECT_EQ(Server(), "");
  Peer client("sms", "");
  EXPECT_EQ(client.Line(), "8");
  const std::string server = Server();
  EXPECT_NE(server, "");
  EXPECT_EQ(Tell("get_server_status " + server), "ACTIVE");
  EXPECT_EQ(Tell("get_client_list " + server), std::to_string(client.pid()));
  EXPECT_TRUE(Tell("get_device_client_list").ends_with(" " + std::to_string(client.pid())));
  Peer second("sms", "");
  EXPECT_EQ(second.Line(), "8");
  EXPECT_EQ(Server(), server);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/control.log"));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/server.log"));
}

TEST_F(ApiMps, ADirectoryWithoutADaemonIsAsNone) {
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", 1);
  EXPECT_EQ(Peer("sms", "").Line(), "8");
  EXPECT_EQ(Tell("get_server_list"), "Cannot find MPS control daemon process");
  setenv("CUDA_MPS_PIPE_DIRECTORY", folder_.path().c_str(), 1);
  EXPECT_EQ(Server(), "");
}

TEST_F(ApiMps, OneDaemonForADirectory) { EXPECT_NE(std::system(TESSERA_SOFT_MPS_CONTROL " -d 2>/dev/null"), 0); }

TEST_F(ApiMps, TheDeviceTellsTheCeiling) {
  EXPECT_EQ(Tell("get_default_active_thread_percentage"), "100.0");
  EXPECT_EQ(Tell("set_default_active_thread_percentage 70"), "70.0");
  EXPECT_EQ(Peer("sms", "").Line(), "5");
  EXPECT_EQ(Tell("set_active_thread_percentage " + Server() + " 50"), "50.0");
  EXPECT_EQ(Tell("get_active_thread_percentage " + Server()), "50.0");
  EXPECT_EQ(Peer("sms", "").Line(), "4");
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30", 1);
  EXPECT_EQ(Peer("sms", "").Line(), "2");
}

TEST_F(ApiMps, AFaultEndsAllClientsOfTheServer) {
  auto victim = std::make_unique<Peer>("spin", "");
  EXPECT_EQ(victim->Line(), "runs");
  {
    Peer culprit("fault", "");
    EXPECT_EQ(culprit.Line(), "runs");
    EXPECT_EQ(culprit.Line(), "CUDA_ERROR_ILLEGAL_ADDRESS");
  }
  EXPECT_EQ(victim->Line(), "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(Tell("get_server_status " + Server()), "FAULT");
  EXPECT_EQ(Peer("sms", "").Line(), "CUDA_ERROR_MPS_SERVER_NOT_READY");
  victim.reset();
  EXPECT_EQ(Peer("sms", "").Line(), "8");
  EXPECT_EQ(Tell("get_server_status " + Server()), "ACTIVE");
}

TEST_F(ApiMps, TerminateClientEndsOneWithItsWork) {
  Peer first("spin", "");
  Peer second("spin", "");
  EXPECT_EQ(first.Line(), "runs");
  EXPECT_EQ(second.Line(), "runs");
  EXPECT_EQ(Tell("terminate_client " + Server() + " " + std::to_string(first.pid())), "0");
  EXPECT_EQ(first.Line(), "CUDA_ERROR_MPS_CLIENT_TERMINATED");
  EXPECT_EQ(Tell("get_server_status " + Server()), "ACTIVE");
  // A kill harms no other either.
  second.Kill();
  EXPECT_EQ(second.Line(), "");
  EXPECT_EQ(Peer("sms", "").Line(), "8");
}

TEST_F(ApiMps, TheDeathOfAServerEndsItsClients) {
  Peer client("spin", "");
  EXPECT_EQ(client.Line(), "runs");
  const std::string server = Server();
  kill(std::stoi(server), SIGKILL);
  EXPECT_EQ(client.Line(), "CUDA_ERROR_MPS_RPC_FAILURE");
  EXPECT_EQ(Peer("sms", "").Line(), "8");
  EXPECT_NE(Server(), server);
}

TEST_F(ApiMps, AServerThatShutsDownWaitsForItsClients) {
  auto client = std::make_unique<Peer>("sms", "");
  EXPECT_EQ(client->Line(), "8");
  const std::string server = Server();
  EXPECT_EQ(Tell("shutdown_server " + server), "");
  EXPECT_EQ(Peer("sms", "").Line(), "CUDA_ERROR_MPS_SERVER_NOT_READY");
  EXPECT_EQ(Server(), server);
  client.reset();
  tessera::WaitUntil([] { return Server().empty(); });
  Peer spinning("spin", "");
  EXPECT_EQ(spinning.Line(), "runs");
  EXPECT_EQ(Tell("shutdown_server " + Server() + " -f"), "");
  EXPECT_EQ(spinning.Line(), "CUDA_ERROR_MPS_RPC_FAILURE");
}

TEST_F(ApiMps, CommandsThatAreWrongSayHow) {
  EXPECT_TRUE(Tell("get_servers").starts_with("there is no command 'get_servers': use one of get_server_list, "));
  EXPECT_EQ(Tell("get_client_list"), "usage: get_client_list PID");
  EXPECT_TRUE(Tell("get_client_list 1").starts_with("there is no server 1"));
  EXPECT_EQ(Tell("set_default_active_thread_percentage 101"), "a percentage is more than 0 and at most 100");
  EXPECT_EQ(Tell("start_server -uid " + std::to_string(geteuid())), "");
  EXPECT_NE(Server(), "");
}

TEST_F(ApiMps, ClientsHaveNoCheckpoints) {
  Peer client("work", "device");
  ASSERT_EQ(client.Line(), "ready");
  Peer asks("lock", std::to_string(client.pid()));
  EXPECT_EQ(asks.Line(), "asks");
  EXPECT_EQ(asks.Line(), "CUDA_ERROR_NOT_SUPPORTED");
  client.Say();
  EXPECT_EQ(client.Line(), "1");
}

}  // namespace
}  // namespace tessera::soft
