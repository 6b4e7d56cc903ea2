// The conversation of a mover with its daemon and with programs, all of which are the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/seqpacket.h"
#include "mover/mover.h"
#include "mover/testing/fake_gpu.h"
#include "mover/testing/process.h"

namespace tessera::mover {

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;
using wire::MoverMessage;
using wire::MoverType;

// Both ends of a socket: one is a mover's, one the test's.
inline std::pair<UniqueFd, UniqueFd> Pair() {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

inline UniqueFd Memory(std::uint64_t bytes) {
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(memory.Get(), static_cast<off_t>(bytes)), 0);
  return memory;
}

// A mover with 16 slots, and a program, 1, whose process does nothing, and of which the test has the other end of the
// line.
class Conversation : public testing::Test {
 protected:
  explicit Conversation(std::optional<SwapFile> file = {}, Nanos patience = kPatience) {
    auto [own, other] = Pair();
    daemon_ = std::move(own);
    mover_ = std::make_unique<Mover>(
        gpu_, std::move(other), [this] { return MachineMemory{.free = machine_free_}; },
        *KeyTable::Open(Memory(128 * wire::kTableEntryBytes)), std::move(file), patience);
    Tell({.type = MoverType::kPool, .bytes = 16 * kChunkBytes, .other = 16 * kChunkBytes});
    Until([&] { return Pool().bytes == 16 * kChunkBytes; });
    auto [line, far] = Pair();
    line_ = std::move(line);
    Tell({.type = MoverType::kProgram, .program = 1, .bytes = static_cast<std::uint64_t>(process_), .other = 7},
         far.Get());
  }

  ~Conversation() override { EndProcess(); }

  void Tell(MoverMessage message, int fd = -1) { EXPECT_TRUE(SendPacket(daemon_.Get(), BytesOf(message), fd)); }

  // Runs the mover until the condition holds.
  void Until(const std::function<bool()>& condition) {
    const Nanos limit = MonotonicNow() + 120 * kSecond;
    while (!condition()) {
      ASSERT_LT(MonotonicNow(), limit);
      const auto turn = mover_->RunOnce(kMillisecond);
      ASSERT_TRUE(turn && *turn);
      ReadDaemon();
    }
  }
  void ReadDaemon() {
    MoverMessage message;
    while (recv(daemon_.Get(), &message, sizeof message, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof message))
      OnTold(message);
  }
  void OnTold(const MoverMessage& message) {
    told_[message.type] = message;
    const bool slot = message.type == MoverType::kSlotMade || message.type == MoverType::kSlotLeft;
    if (slot && keeps_) Tell({.type = MoverType::kSlotKept, .bytes = message.bytes});
  }
  MoverMessage Pool() { return told_[MoverType::kPoolIs]; }
  MoverMessage End(MoverType type) {
    Until([&] { return told_.contains(type); });
    const MoverMessage message = told_[type];
    told_.erase(type);
    return message;
  }

  // The mover's next message on the line.
  LineMessage Hear() {
    LineMessage message;
    Until([&] {
      return recv(line_.Get(), &message, sizeof message, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof message);
    });
    return message;
  }
  bool HearsNothing() {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(mover_->RunOnce(kMillisecond));
    char byte;
    return recv(line_.Get(), &byte, 1, MSG_DONTWAIT) < 0;
  }
  void Say(LineType type, std::vector<std::uint64_t> chunks, int error = 0) {
    LineMessage message = {.type = type, .count = static_cast<std::uint32_t>(chunks.size()), .error = error};
    std::ranges::copy(chunks, message.chunk);
    if (type == LineType::kOffer || type == LineType::kWant) std::fill_n(message.units, message.count, wire::kAllUnits);
    std::vector<UniqueFd> owned;
    std::vector<int> fds;
    for (std::uint32_t i = 0; i < DescriptorsOf(message); ++i) {
      owned.emplace_back(memfd_create("fake", MFD_CLOEXEC));
      fds.push_back(owned.back().Get());
    }
    EXPECT_TRUE(SendPacket(line_.Get(), BytesOf(message), fds));
  }
  void Move(MoverType type, std::uint64_t chunks) { Tell({.type = type, .program = 1, .bytes = chunks * kChunkBytes}); }
  // Chunks 1 to `count` are out.
  void StoreChunks(std::uint64_t count) {
    for (std::uint64_t chunk = 1; chunk <= count;) {
      std::vector<std::uint64_t> chunks;
      while (chunk <= count && chunks.size() < kAtATime) chunks.push_back(chunk++);
      Move(MoverType::kEvict, chunks.size());
      EXPECT_EQ(Hear().count, chunks.size());
      Say(LineType::kOffer, chunks);
      EXPECT_EQ(Hear().type, LineType::kStored);
      Say(LineType::kFreed, chunks);
      EXPECT_EQ(End(MoverType::kEvicted).error, 0);
    }
  }
  void ExpectInUse(std::uint64_t chunks) {
    Until([&] { return Pool().other == chunks * kChunkBytes; });
  }

  void EndProcess() {
    if (process_ > 0) mover::EndProcess(std::exchange(process_, 0));
  }

  pid_t process_ = StartProcess();  // the program's
  FakeGpu gpu_;
  std::atomic<std::uint64_t> machine_free_ = UINT64_MAX;
  UniqueFd daemon_, line_;
  std::map<MoverType, MoverMessage> told_;
  bool keeps_ = true;  // slots that are made, for the next mover
  std::unique_ptr<Mover> mover_;
};

}  // namespace tessera::mover
