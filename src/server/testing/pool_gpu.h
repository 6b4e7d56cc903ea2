#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/handover/slot_handover.h"
#include "wire/line.h"

namespace tessera::server {

// Notes what it is told.
class HeardMover : public Mover {
 public:
  explicit HeardMover(std::vector<wire::MoverMessage>& heard) : heard_(heard) {}
  bool Send(const wire::MoverMessage& message, int fd) override {
    if (message.type == wire::MoverType::kSlotFor) EXPECT_GE(fd, 0);
    if (message.type != wire::MoverType::kPool && message.type != wire::MoverType::kPrepare) heard_.push_back(message);
    return true;
  }
  pid_t Pid() const override { return 1; }
  bool Ended() override { return true; }

 private:
  std::vector<wire::MoverMessage>& heard_;
};

// The pool of a GPU, with a mover that says what the test wants.
struct PoolGpu {
  static constexpr pid_t kOwner = 500;

  explicit PoolGpu(EventLoop& loop, std::uint32_t index = 0)
      : gpu(index), holder(loop, index, "/nowhere", slots, file, UniqueFd()) {
    link.Ensure(kSecond);
    Say({.type = wire::MoverType::kReady});
  }
  void Say(wire::MoverMessage message) { say(&message); }
  // A slot with something that the owner has there, or with nothing.
  void Put(std::uint64_t number, std::uint32_t marks) { Put(number, marks, number + 70); }
  void PutFree(std::uint64_t number, std::uint32_t marks) { Put(number, marks, 0); }
  void Put(std::uint64_t number, std::uint32_t marks, std::uint64_t key) {
    const wire::SwapEntry entry = {.key = key, .owner = kOwner, .marks = marks, .domain = 7, .memory = number};
    EXPECT_EQ(pwrite(slots.table(), &entry, sizeof entry, static_cast<off_t>(number * sizeof entry)),
              static_cast<ssize_t>(sizeof entry));
    slots.Keep(number, UniqueFd(memfd_create("slot", MFD_CLOEXEC)));
  }
  std::vector<wire::MoverMessage> TakeHeard() { return std::exchange(heard, {}); }
  SlotHandover::Side Side() { return {link, slots, holder}; }

  const std::uint32_t gpu;
  SwapSlots slots = *SwapSlots::Make(32 * wire::kChunkBytes);
  SwapFile file;
  SwapHolderLink holder;
  std::vector<wire::MoverMessage> heard;
  std::function<void(const wire::MoverMessage*)> say;
  MoverLink link{gpu,
                 {.most = 8 * wire::kChunkBytes},
                 {.start = [this](auto on_message) -> Result<std::unique_ptr<Mover>> {
                    say = on_message;
                    return std::make_unique<HeardMover>(heard);
                  },
                  .ready = [] {},
                  .gone = [] {},
                  .report = [](const wire::MoverMessage&) {},
                  .machine = [] {}}};
};

}  // namespace tessera::server
