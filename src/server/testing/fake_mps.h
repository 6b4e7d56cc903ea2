#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "base/testing/temporary_folder.h"
#include "base/testing/wait_until.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// A loop on a thread of its own, and an MPS control program that does as the test says: a script whose answers are
// files. `servers` has the pids of the servers, `status` that of the server, `then` its next one, `next` the server
// that is started when one is needed; `said` gets the commands. Without `next` no server starts. As long as somebody
// may write to the pipe `held`, the list of servers does not come. `clients` has the pids of the server's clients.
// `terminated` gets those that are terminated; while `refusal` is there none is, and its text is the answer.
class FakeMpsTest : public testing::Test {
 protected:
  void SetUp() override {
    Write("program", "#!/bin/sh\ncd " + folder_.path() + R"(
if [ "$1" = -f ]; then
  echo "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_VISIBLE_DEVICES" >> starts
  touch "$CUDA_MPS_PIPE_DIRECTORY/up"
  exec sleep 1000000
fi
read -r command first second
echo "$command $first $second" >> said
[ -e "$CUDA_MPS_PIPE_DIRECTORY/up" ] || exit 1
case $command in
  get_server_list) [ ! -e held ] || cat held; cat servers ;;
  get_server_status) cat status; [ ! -e then ] || mv then status ;;
  start_server) cp next servers || { echo no server; exit 1; } ;;
  shutdown_server) echo ACTIVE > status; : > servers ;;
  get_client_list) [ ! -e clients ] || cat clients ;;
  terminate_client) if [ -e refusal ]; then cat refusal; echo 1; else echo "$second" >> terminated; echo 0; fi ;;
  quit) read -r pid start < "${CUDA_MPS_PIPE_DIRECTORY%/pipe}/daemon"; kill "$pid" ;;
esac 2>&1
)");
    chmod(Program().c_str(), 0755);
    Write("servers", "");
    Write("status", "ACTIVE\n");
    Write("next", "4711\n");
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop);
    loop_ = std::move(*loop);
    thread_ = std::thread([this] { (void)loop_->Run(); });
  }
  void TearDown() override {
    loop_->Post([this] { loop_->Stop(); });
    thread_.join();
  }

  // On the loop's thread.
  template <typename Act>
  auto On(Act act) {
    return *loop_->Call([&act] {
      if constexpr (std::is_void_v<decltype(act())>) {
        act();
        return 0;
      } else {
        return act();
      }
    });
  }

  std::string Program() const { return folder_.path() + "/program"; }
  // At once, for whoever reads it.
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() + "/new") << text;
    std::filesystem::rename(folder_.path() + "/new", folder_.path() + "/" + name);
  }
  void Erase(const std::string& name) const { std::filesystem::remove(folder_.path() + "/" + name); }
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_.path() + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int TimesSaid(const std::string& command) const {
    int times = 0;
    const std::string all = Read("said");
    for (std::size_t at = 0; (at = all.find(command, at)) != std::string::npos; at += command.size()) ++times;
    return times;
  }
  bool Said(const std::string& command) const { return Read("said").find(command) != std::string::npos; }

  const TemporaryFolder folder_;
  std::unique_ptr<EventLoop> loop_;
  std::thread thread_;
};

}  // namespace tessera::server
