#include "mover/holder/swap_holder.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"
#include "mover/pool/key_table.h"
#include "mover/testing/process.h"
#include "mover/testing/test_pool.h"

namespace tessera::mover {
namespace {

using wire::SwapHolderMessage;
using wire::SwapHolderType;

// What a daemon was given: the numbers of slots, and the other things by their type, each with its descriptor's inode.
struct Given {
  std::map<SwapHolderType, ino_t> things;
  std::map<std::uint64_t, ino_t> slots;
  std::uint64_t version = 0;
  std::vector<SwapHolderType> order;
};

ino_t InodeOf(int fd) {
  struct stat status{};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// A holder, and the daemons that come to it one after the other. Nothing runs but what the test runs.
class SwapHolderTest : public testing::Test {
 protected:
  void SetUp() override { holder_.emplace(ListenSeqpacket(path_.c_str(), 4), path_); }

  void Connect() {
    daemon_ = ConnectSeqpacket(path_.c_str());
    ASSERT_TRUE(daemon_);
    ASSERT_TRUE(Turn());
  }
  // It has read all that it was told.
  bool Turn() {
    bool needed = true;
    for (int i = 0; i < 20 && needed; ++i) needed = holder_->RunOnce(0);
    return needed;
  }
  void Say(SwapHolderType type, std::uint64_t number = 0, int fd = -1) {
    ASSERT_TRUE(SendPacket(daemon_.Get(), BytesOf(SwapHolderMessage{.type = type, .number = number}), fd));
  }
  void GiveTable() { Say(SwapHolderType::kSlotsTable, wire::kHandoverVersion, file_.Get()); }
  Given Take() {
    Given given;
    Say(SwapHolderType::kGive);
    EXPECT_TRUE(Turn());
    while (!given.order.empty() ? given.order.back() != SwapHolderType::kAll : true) {
      std::array<std::byte, sizeof(SwapHolderMessage)> packet;
      UniqueFd fd;
      if (ReceivePacket(daemon_.Get(), packet, &fd) <= 0) break;
      const auto message = wire::ReadSwapHolder(packet);
      given.order.push_back(message->type);
      if (message->type == SwapHolderType::kSlotsTable) given.version = message->number;
      if (message->type == SwapHolderType::kSlot) {
        given.slots[message->number] = InodeOf(fd.Get());
      } else if (fd) {
        given.things[message->type] = InodeOf(fd.Get());
      }
    }
    return given;
  }
  // The daemon ends. Whether the holder is needed without it.
  bool DaemonEnds() {
    daemon_.Reset();
    return Turn();
  }
  // A slot with something of this process in it; its number.
  std::uint64_t Use(pid_t owner) {
    const std::uint64_t number = RandomNumber();
    table_.Reset(next_, number);
    table_.MarkGiven(next_, 7);
    EXPECT_TRUE(table_.Use(next_++, owner));
    return number;
  }
  bool HasName() const {
    struct stat status{};
    return lstat(path_.c_str(), &status) == 0;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/swap.sock";
  std::optional<SwapHolder> holder_;
  UniqueFd daemon_;
  UniqueFd file_ = TableFile(8);
  KeyTable table_ = std::move(*KeyTable::Open(UniqueFd(dup(file_.Get()))));
  Place next_ = 0;
  const UniqueFd memory_ = TableFile(1), other_ = TableFile(1);
};

TEST_F(SwapHolderTest, TheNextDaemonGetsWhatTheLastOneGave) {
  Connect();
  GiveTable();
  const UniqueFd swap = TableFile(1), table = TableFile(1);
  Say(SwapHolderType::kFile, 0, swap.Get());
  Say(SwapHolderType::kFileTable, 0, table.Get());
  const std::uint64_t number = Use(getpid());
  Say(SwapHolderType::kSlot, number, memory_.Get());
  Say(SwapHolderType::kSlot, 5, other_.Get());
  Say(SwapHolderType::kSlot, 6, other_.Get());
  Say(SwapHolderType::kSlotGone, 5);
  for (int daemons = 0; daemons < 2; ++daemons) {
    ASSERT_TRUE(DaemonEnds());
    Connect();
    const Given given = Take();
    EXPECT_EQ(given.version, wire::kHandoverVersion);
    EXPECT_EQ(given.things, (std::map<SwapHolderType, ino_t>{{SwapHolderType::kSlotsTable, InodeOf(file_.Get())},
                                                             {SwapHolderType::kFile, InodeOf(swap.Get())},
                                                             {SwapHolderType::kFileTable, InodeOf(table.Get())}}));
    EXPECT_EQ(given.slots,
              (std::map<std::uint64_t, ino_t>{{number, InodeOf(memory_.Get())}, {6, InodeOf(other_.Get())}}));
    EXPECT_EQ(given.order.front(), SwapHolderType::kSlotsTable);
    EXPECT_EQ(given.order.back(), SwapHolderType::kAll);
  }
}

TEST_F(SwapHolderTest, ADaemonThatDiesWhileItIsGivenLeavesAllToTheNext) {
  Connect();
  GiveTable();
  const std::uint64_t number = Use(getpid());
  Say(SwapHolderType::kSlot, number, memory_.Get());
  ASSERT_TRUE(DaemonEnds());
  Connect();
  Say(SwapHolderType::kGive);
  ASSERT_TRUE(DaemonEnds());
  Connect();
  EXPECT_TRUE(Take().slots.contains(number));
}

TEST_F(SwapHolderTest, ItReadsWhatADaemonSaidBeforeItsEnd) {
  Connect();
  GiveTable();
  const std::uint64_t number = Use(getpid());
  Say(SwapHolderType::kSlot, number, memory_.Get());
  daemon_.Reset();
  daemon_ = ConnectSeqpacket(path_.c_str());  // before the holder has seen the end of the other one
  EXPECT_TRUE(Take().slots.contains(number));
}

TEST_F(SwapHolderTest, EndsWithADaemonThatLeavesNothingOfALivingProgram) {
  Connect();
  GiveTable();
  const pid_t ended = StartProcess();
  EndProcess(ended);
  Say(SwapHolderType::kSlot, Use(ended), memory_.Get());
  Say(SwapHolderType::kSlot, 6, other_.Get());  // nothing is in it
  Use(getpid());                                // its memory was never given, so nobody can have it back
  EXPECT_FALSE(DaemonEnds());
  EXPECT_FALSE(HasName());
}

TEST_F(SwapHolderTest, StaysForWhatIsInTheFile) {
  Connect();
  GiveTable();
  Say(SwapHolderType::kFile, 0, memory_.Get());
  Say(SwapHolderType::kFileTable, 0, file_.Get());
  Use(getpid());
  EXPECT_TRUE(DaemonEnds());
}

TEST_F(SwapHolderTest, StaysUntilTheMoverHasEnded) {
  const pid_t mover = StartProcess();
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, mover, 0)));
  ASSERT_TRUE(process);
  Connect();
  GiveTable();
  Say(SwapHolderType::kMover, 0, process.Get());
  ASSERT_TRUE(DaemonEnds());
  Connect();
  EXPECT_TRUE(Take().things.contains(SwapHolderType::kMover));
  EndProcess(mover);
  EXPECT_FALSE(DaemonEnds());
}

TEST_F(SwapHolderTest, LeavesTheNameOfTheHolderAfterIt) {
  Connect();
  GiveTable();
  const UniqueFd next = ListenSeqpacket(path_.c_str(), 4);
  ASSERT_TRUE(next);
  EXPECT_FALSE(DaemonEnds());
  EXPECT_TRUE(HasName());
}

TEST_F(SwapHolderTest, IgnoresWhatItDoesNotKnow) {
  Connect();
  GiveTable();
  Say(static_cast<SwapHolderType>(99), 1, memory_.Get());
  ASSERT_TRUE(SendPacket(daemon_.Get(), std::as_bytes(std::span("?"))));
  Say(SwapHolderType::kSlot, 6);  // its descriptor did not arrive
  EXPECT_TRUE(Take().slots.empty());
}

}  // namespace
}  // namespace tessera::mover
