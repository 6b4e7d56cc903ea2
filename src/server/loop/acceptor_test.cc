#include "server/loop/acceptor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"
#include "server/loop/listeners.h"

namespace tessera::server {
namespace {

class AcceptorTest : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = std::move(*EventLoop::Create());
    listeners_.emplace(std::move(*Listeners::Open(dir_.path())));
    // Not through `this`: without a descriptor UBSan cannot look at an object's type.
    auto acceptor = Acceptor::Start(
        *loop_, std::move(listeners_->client),
        [taken = &taken_, loop = loop_.get()](UniqueFd) { ++*taken, loop->Stop(); },
        [turned_away = &turned_away_, loop = loop_.get()](UniqueFd) { ++*turned_away, loop->Stop(); });
    acceptor_ = std::move(*acceptor);
  }

  const TemporaryFolder dir_;
  std::unique_ptr<EventLoop> loop_;
  std::optional<Listeners> listeners_;
  std::unique_ptr<Acceptor> acceptor_;
  int taken_ = 0, turned_away_ = 0;
};

TEST_F(AcceptorTest, Takes) {
  const UniqueFd client = ConnectSeqpacket((dir_.path() + "/client.sock").c_str());
  ASSERT_TRUE(loop_->Run());
  EXPECT_EQ(taken_, 1);
}

TEST_F(AcceptorTest, WithoutADescriptorLeftNobodyWaitsForEver) {
  const UniqueFd client = ConnectSeqpacket((dir_.path() + "/client.sock").c_str());
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit full = before;
  full.rlim_cur = static_cast<rlim_t>(UniqueFd(dup(client.Get())).Get());  // the first number that is free
  setrlimit(RLIMIT_NOFILE, &full);
  const auto ran = loop_->Run();
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(ran);
  EXPECT_EQ(taken_, 0);
  EXPECT_EQ(turned_away_, 1);
  std::byte byte[1];
  EXPECT_EQ(ReceivePacket(client.Get(), byte), 0);  // closed
}

}  // namespace
}  // namespace tessera::server
