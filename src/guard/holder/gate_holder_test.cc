#include "guard/holder/gate_holder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"

namespace tessera::guard {
namespace {

class GateHolderTest : public testing::Test {
 protected:
  // A daemon comes and goes; nobody needs the holder then.
  void RunToItsEnd(GateHolder& holder, UniqueFd daemon) {
    ASSERT_TRUE(holder.RunOnce(kSecond));
    SendPacket(daemon.Get(), BytesOf({.type = HolderType::kHello}));
    daemon.Reset();
    while (holder.RunOnce(kSecond)) {
    }
  }
  bool Exists() const {
    struct stat status{};
    return lstat(path_.c_str(), &status) == 0;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/gates.sock";
};

TEST_F(GateHolderTest, TakesItsNameAwayAtItsEnd) {
  GateHolder holder(ListenSeqpacket(path_.c_str(), 4), path_);
  RunToItsEnd(holder, ConnectSeqpacket(path_.c_str()));
  EXPECT_FALSE(Exists());
}

TEST_F(GateHolderTest, LeavesTheNameOfTheHolderAfterIt) {
  GateHolder holder(ListenSeqpacket(path_.c_str(), 4), path_);
  UniqueFd daemon = ConnectSeqpacket(path_.c_str());
  const UniqueFd next = ListenSeqpacket(path_.c_str(), 4);
  ASSERT_TRUE(next);
  RunToItsEnd(holder, std::move(daemon));
  EXPECT_TRUE(Exists());
}

}  // namespace
}  // namespace tessera::guard
