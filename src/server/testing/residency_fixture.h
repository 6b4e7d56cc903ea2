// A residency server with a mover that says what the test wants.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "server/swap/chunks.h"
#include "server/swap/residency_server.h"

namespace tessera::server {

// Notes its orders, in chunks, and the last that it was told of its pool.
class NotingMover : public Mover {
 public:
  struct Ordered {
    wire::MoverType type{};
    std::uint64_t program = 0;
    std::uint64_t chunks = 0;
  };

  inline static int relocates = 0;  // kRelocate was heard so often

  NotingMover(std::vector<Ordered>& orders, std::map<wire::MoverType, wire::MoverMessage>& pool)
      : orders_(orders), pool_(pool) {}
  bool Send(const wire::MoverMessage& message, int) override {
    if (message.type == wire::MoverType::kPool || message.type == wire::MoverType::kPrepare)
      pool_[message.type] = message;
    if (message.type == wire::MoverType::kEvict || message.type == wire::MoverType::kLoad ||
        message.type == wire::MoverType::kSettle)
      orders_.push_back({message.type, message.program, message.bytes / wire::kChunkBytes});
    relocates += message.type == wire::MoverType::kRelocate ? 1 : 0;
    return true;
  }
  pid_t Pid() const override { return 1; }
  bool Ended() override { return true; }

 private:
  std::vector<Ordered>& orders_;
  std::map<wire::MoverType, wire::MoverMessage>& pool_;
};

// A GPU of ten chunks, and programs that say where their memory is as the shim does.
class ResidencyTest : public testing::Test {
 protected:
  using Answer = sched::RoomAnswer::Kind;
  using MoverMessage = wire::MoverMessage;
  using MoverType = wire::MoverType;
  using Ordered = NotingMover::Ordered;
  static constexpr std::uint64_t kChunk = wire::kChunkBytes;

  explicit ResidencyTest(std::uint64_t file = 0, std::optional<std::uint64_t> prepare = 0)
      : file_(file), prepare_(prepare) {}

  struct Member {
    explicit Member(pid_t pid) : process(SharedPage::Create(0).value(), pid) {}
    VGpu vgpu;
    Process process;
  };

  // In a vGPU of its own. It has `chunks` on the GPU, and no work.
  Member& Idle(std::uint64_t chunks, std::optional<std::uint64_t> swap_max = {}) {
    Member& member = *members_.emplace_back(std::make_unique<Member>(static_cast<pid_t>(100 + members_.size())));
    member.vgpu.id = static_cast<VgpuId>(members_.size());
    if (swap_max) member.vgpu.spec.memory.swap = *swap_max * kChunk;
    vgpus_.push_back(&member.vgpu);
    member.process.vgpu = &member.vgpu;
    member.vgpu.processes.push_back(&member.process);
    EXPECT_TRUE(residency_.MakeLine(member.process, MonotonicNow()));
    if (chunks > 0) {
      EXPECT_EQ(residency_.Ask(member.process, chunks * kChunk, /*pins=*/false, MonotonicNow()), Answer::kGrant);
      Allocated(member, chunks);
    }
    return member;
  }
  // It takes the room that it was granted for this.
  static void Allocated(Member& member, std::uint64_t chunks) { member.process.memory.reserved += chunks * kChunk; }
  static void TakeCredit(Member& member) {
    Allocated(member, member.process.residence.Credit() / kChunk);
    member.process.page->room_credit.store(0);
  }

  Answer Ask(Member& member, std::uint64_t chunks) {
    return residency_.Ask(member.process, chunks * kChunk, /*pins=*/false, MonotonicNow());
  }

  void Look(Nanos later = 0) { residency_.Look(MonotonicNow() + later); }
  ResidencyServer::Figures Figures() const { return residency_.FiguresAt(MonotonicNow()); }
  void Hear(MoverMessage message) { on_mover_(&message); }
  // Does what the mover was told last, all of it, as program and mover do. What it was.
  Ordered Carry() {
    if (orders_.empty()) return {};
    const Ordered order = orders_.front();
    orders_.erase(orders_.begin());
    for (const auto& member : members_) {
      if (member->process.residence.line.number != order.program) continue;
      Process& process = member->process;
      const std::uint64_t bytes = order.chunks * kChunk;
      MoverMessage moved = {.type = MoverType::kMoved,
                            .program = order.program,
                            .bytes = moved_[order.program].out,
                            .other = moved_[order.program].in};
      if (order.type == MoverType::kEvict) {
        process.page->swapped += bytes;
        moved.bytes = moved_[order.program].out += bytes;
        moved.copied_out = moved.bytes;
        moved.copied_in = moved.other;
        Hear(moved);
        Hear({.type = MoverType::kEvicted, .program = order.program});
      } else if (order.type == MoverType::kLoad) {
        process.page->swapped -= bytes;
        moved.other = moved_[order.program].in += bytes;
        moved.copied_out = moved.bytes;
        moved.copied_in = moved.other;
        Hear(moved);
        Hear({.type = MoverType::kLoaded, .program = order.program});
      } else {
        Hear({.type = MoverType::kSettled, .program = order.program});
      }
    }
    return order;
  }
  // How many chunks were brought out until nothing is left to do.
  std::uint64_t CarryAll() {
    std::uint64_t out = 0;
    for (int i = 0; i < 100 && !orders_.empty(); ++i) {
      const Ordered order = Carry();
      out += order.type == MoverType::kEvict ? order.chunks : 0;
    }
    EXPECT_TRUE(orders_.empty());
    return out;
  }
  // Runs the loop until then, for 10 s at most.
  void RunUntil(const std::function<bool()>& is_so) {
    const Nanos end = MonotonicNow() + 10 * kSecond;
    EventLoop::Timer look(*loop_, [&] {
      if (is_so() || MonotonicNow() > end) return loop_->Stop();
      look.Arm(MonotonicNow() + 5 * kMillisecond);
    });
    look.Arm(MonotonicNow());
    EXPECT_TRUE(loop_->Run());
  }
  static std::uint64_t Out(const Member& member) { return member.process.residence.Swapped() / kChunk; }
  static std::uint64_t On(const Member& member) { return member.process.residence.Movable() / kChunk; }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Create().value();
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<VGpu*> vgpus_;
  std::vector<Ordered> orders_;
  std::map<MoverType, MoverMessage> pool_;  // what the mover was told of it last
  std::map<std::uint64_t, Moves> moved_;    // by the mover, of each program that it knows
  std::function<void(const MoverMessage*)> on_mover_;
  int starts_ = 0;
  const std::uint64_t file_;
  const std::optional<std::uint64_t> prepare_;
  const Survivors survivors_{*loop_, [] {}};  // none
  ResidencyServer residency_{*loop_,
                             0,
                             {},
                             {.pool = 100 * kChunk, .file = file_, .prepare = prepare_},
                             vgpus_,
                             {.survivors = &survivors_,
                              .capacity = [] { return 10 * kChunk; },
                              .outside = [](const Process& process) { return process.memory.context_bytes; },
                              .hold =
                                  [this](Process& process, MemoryHold hold, Nanos) {
                                    process.freeze.by_residency = hold;
                                    residency_.MarkDue();  // as the GPU server does after each event
                                  },
                              .still = [](const Process&) { return true; },
                              .start_mover = [this](auto on_message) -> Result<std::unique_ptr<Mover>> {
                                on_mover_ = on_message;
                                ++starts_;
                                return std::make_unique<NotingMover>(orders_, pool_);
                              }}};

  void SetUp() override {
    Idle(0);  // which has the mover started
    EXPECT_EQ(Ask(*members_.front(), 8), Answer::kGrant);
    Look();
    ASSERT_TRUE(on_mover_);
    Hear({.type = MoverType::kReady});
    members_.front()->process.residence.room = 0;
    members_.front()->process.page->room_credit.store(0);
  }
};

}  // namespace tessera::server
