#include "server/swap/swap_handover.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "base/seqpacket.h"
#include "wire/mover.h"

namespace tessera::server {
namespace {

using wire::MoverMessage;
using wire::MoverType;

UniqueFd Memory(off_t bytes) {
  UniqueFd fd(memfd_create("memory", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.Get(), bytes), 0);
  return fd;
}

// A mover that says what a test has it say, and whether the daemon said in the end that it has all.
class SwapSuccessor : public testing::Test {
 protected:
  SwapSuccessor() : listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::ranges::copy(path_, address.sun_path);
    EXPECT_EQ(bind(listener_.Get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.Get(), 1), 0);
  }
  ~SwapSuccessor() override { unlink(path_.c_str()); }
  void Say(MoverType type, std::uint64_t number = 0, int fd = -1, std::uint64_t version = wire::kHandoverVersion) {
    const MoverMessage message = {.type = type, .bytes = number, .other = type == MoverType::kSlotsTable ? version : 0};
    EXPECT_TRUE(SendPacket(line_.Get(), wire::BytesOf(message), fd));
  }
  std::optional<KeptSwap> Take(const std::function<void()>& say) {
    std::thread mover([&] {
      line_.Reset(accept(listener_.Get(), nullptr, nullptr));
      say();
      shutdown(line_.Get(), SHUT_WR);
      std::byte answer[sizeof(MoverMessage)];
      answered_ = ReceivePacket(line_.Get(), answer) == static_cast<ssize_t>(sizeof answer);
    });
    auto kept = TakeKeptSwap(path_);
    mover.join();
    return kept;
  }

  const std::string path_ = testing::TempDir() + "/successor-" + std::to_string(getpid()) + ".sock";
  UniqueFd listener_, line_;
  bool answered_ = false;
};

TEST_F(SwapSuccessor, GetsAllThatTheMoverHas) {
  const UniqueFd table = Memory(64), file = Memory(100), slot = Memory(1);
  const auto kept = Take([&] {
    Say(MoverType::kSlotsTable, 0, table.Get());
    Say(MoverType::kFile, 0, file.Get());
    Say(MoverType::kFileTable, 0, table.Get());
    Say(MoverType::kSlotMade, 5, slot.Get());
    Say(MoverType::kSlotMade, 3, slot.Get());
    Say(MoverType::kAll);
  });
  ASSERT_TRUE(kept);
  EXPECT_TRUE(answered_);
  EXPECT_EQ(kept->slots.count(), 2u);
  EXPECT_EQ(kept->slots.After(0)->number, 3u);
  EXPECT_EQ(kept->file.bytes, 100u);
  EXPECT_GE(kept->slots.table(), 10);
}

TEST_F(SwapSuccessor, GetsNoFileWhereThereIsNone) {
  const UniqueFd table = Memory(64);
  const auto kept = Take([&] {
    Say(MoverType::kSlotsTable, 0, table.Get());
    Say(MoverType::kAll);
  });
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->file.bytes, 0u);
}

TEST_F(SwapSuccessor, GetsNothingOfAMoverThatDiesMeanwhile) {
  const UniqueFd table = Memory(64);
  EXPECT_FALSE(Take([&] { Say(MoverType::kSlotsTable, 0, table.Get()); }));
  EXPECT_FALSE(answered_);
}

TEST_F(SwapSuccessor, GetsNothingOfAnotherVersion) {
  const UniqueFd table = Memory(64);
  EXPECT_FALSE(Take([&] { Say(MoverType::kSlotsTable, 0, table.Get(), wire::kHandoverVersion + 1); }));
  EXPECT_FALSE(answered_);
}

TEST_F(SwapSuccessor, GetsNothingOfAMoverThatEndsFirst) {
  EXPECT_FALSE(Take([] {}));
}

TEST_F(SwapSuccessor, GetsNothingWhereNobodyListens) { EXPECT_FALSE(TakeKeptSwap(path_ + "-not")); }

}  // namespace
}  // namespace tessera::server
