#include "server/swap/holder/swap_handover.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/seqpacket.h"
#include "base/testing/temporary_folder.h"
#include "wire/swap_holder.h"

namespace tessera::server {
namespace {

using wire::SwapHolderMessage;
using wire::SwapHolderType;

UniqueFd Memory(off_t bytes) {
  UniqueFd fd(memfd_create("memory", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.Get(), bytes), 0);
  return fd;
}

// A holder that says what a test has it say when the daemon asks.
class SwapSuccessor : public testing::Test {
 protected:
  SwapSuccessor() : listener_(ListenSeqpacket(path_.c_str(), 1)) {}
  void Say(SwapHolderType type, std::uint64_t number = 0, int fd = -1) {
    const SwapHolderMessage message = {.type = type, .number = number};
    EXPECT_TRUE(SendPacket(line_.Get(), wire::BytesOf(message), fd));
  }
  void SayTable(std::uint64_t version = wire::kHandoverVersion) {
    const UniqueFd table = Memory(64);
    Say(SwapHolderType::kSlotsTable, version, table.Get());
  }
  std::optional<KeptSwap> Take(const std::function<void()>& say, bool ends = false) {
    std::thread holder([&] {
      line_.Reset(accept(listener_.Get(), nullptr, nullptr));
      std::byte question[sizeof(SwapHolderMessage)];
      EXPECT_EQ(ReceivePacket(line_.Get(), question), static_cast<ssize_t>(sizeof question));
      EXPECT_EQ(wire::ReadSwapHolder(question)->type, SwapHolderType::kGive);
      say();
      if (ends) line_.Reset();
    });
    auto kept = TakeKeptSwap(path_);
    holder.join();
    return kept;
  }
  bool Hears(const UniqueFd& socket) {
    const SwapHolderMessage message = {.type = SwapHolderType::kSlotGone};
    std::byte heard[sizeof message];
    return SendPacket(socket.Get(), wire::BytesOf(message)) && ReceivePacket(line_.Get(), heard) > 0;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/successor.sock";
  UniqueFd listener_, line_;
};

TEST_F(SwapSuccessor, GetsAllThatTheHolderHas) {
  const UniqueFd table = Memory(64), file = Memory(100), slot = Memory(1);
  const auto kept = Take([&] {
    SayTable();
    Say(SwapHolderType::kFile, 0, file.Get());
    Say(SwapHolderType::kFileTable, 0, table.Get());
    Say(SwapHolderType::kSlot, 5, slot.Get());
    Say(SwapHolderType::kSlot, 3, slot.Get());
    Say(SwapHolderType::kAll);
  });
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->slots.count(), 2u);
  EXPECT_EQ(kept->slots.After(0)->number, 3u);
  EXPECT_EQ(kept->file.bytes, 100u);
  EXPECT_GE(kept->slots.table(), 10);
  EXPECT_TRUE(Hears(kept->holder));
}

TEST_F(SwapSuccessor, GivesBackWhatItCannotKeep) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  auto others = SwapSlots::Make(0);  // of another GPU
  const UniqueFd slot = Memory(1);
  const rlimit few = {.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (std::uint64_t number = 1; number < 64; ++number)
    ASSERT_TRUE(others->Keep(number, UniqueFd(fcntl(slot.Get(), F_DUPFD_CLOEXEC, 0))));
  const auto kept = Take([&] {
    SayTable();
    for (const std::uint64_t number : {3, 5, 7}) Say(SwapHolderType::kSlot, number, slot.Get());
    Say(SwapHolderType::kAll);
  });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->slots.count(), 1u);
  for (const std::uint64_t number : {5, 7}) {
    std::byte packet[sizeof(SwapHolderMessage)];
    ASSERT_GT(recv(line_.Get(), packet, sizeof packet, MSG_DONTWAIT), 0);
    const auto message = wire::ReadSwapHolder(packet);
    EXPECT_EQ(message->type, SwapHolderType::kSlotGone);
    EXPECT_EQ(message->number, number);
  }
  EXPECT_TRUE(Hears(kept->holder));
}

TEST_F(SwapSuccessor, GetsNoFileWhereThereIsNone) {
  const auto kept = Take([&] {
    SayTable();
    Say(SwapHolderType::kFile);
    Say(SwapHolderType::kFileTable);
    Say(SwapHolderType::kAll);
  });
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->file.bytes, 0u);
}

TEST_F(SwapSuccessor, WaitsForTheEndOfTheMover) {
  const pid_t mover = fork();
  if (mover == 0) {
    while (true) pause();
  }
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, mover, 0)));
  const auto kept = Take([&] {
    SayTable();
    Say(SwapHolderType::kMover, 0, process.Get());
    Say(SwapHolderType::kAll);
    kill(mover, SIGKILL);
  });
  EXPECT_TRUE(kept);
  EXPECT_EQ(waitpid(mover, nullptr, WNOHANG), mover);
}

TEST_F(SwapSuccessor, GetsWhatItCanOfAHolderThatDiesMeanwhile) {
  const UniqueFd slot = Memory(1);
  const auto kept = Take(
      [&] {
        SayTable();
        Say(SwapHolderType::kSlot, 5, slot.Get());
      },
      /*ends=*/true);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->slots.count(), 1u);
  EXPECT_FALSE(kept->holder);
}

TEST_F(SwapSuccessor, GetsNothingOfAnotherVersion) {
  EXPECT_FALSE(Take([&] {
    SayTable(wire::kHandoverVersion + 1);
    Say(SwapHolderType::kAll);
  }));
}

TEST_F(SwapSuccessor, GetsNothingOfAHolderThatEndsFirst) {
  EXPECT_FALSE(Take([] {}, /*ends=*/true));
}

TEST_F(SwapSuccessor, GetsNothingOfAHolderThatWasGivenNothing) {
  EXPECT_FALSE(Take([&] {
    Say(SwapHolderType::kSlotsTable);
    Say(SwapHolderType::kAll);
  }));
}

TEST_F(SwapSuccessor, GetsNothingWhereNobodyListens) { EXPECT_FALSE(TakeKeptSwap(path_ + "-not")); }

}  // namespace
}  // namespace tessera::server
