// A supervisor is killed at each step of a call, and another one goes on with its record: the program notices nothing.
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>

#include "base/fault.h"
#include "base/testing/wait_until.h"
#include "guard/gate/soft_boundary.h"
#include "guard/holder/gate_holder.h"
#include "guard/supervisor/supervisor.h"
#include "guard/testing/stage.h"
#include "guard/testing/tenant.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

constexpr std::uint64_t kPiece = SoftBoundary::kGranularity, kPieces = 4;

UniqueFd Again(int fd) { return UniqueFd(dup(fd)); }

// Charges as a daemon does: what the record holds first, and then up to a limit.
class Ledger {
 public:
  explicit Ledger(const TreeRecord& record) {
    MemoryObjects objects;
    record.Restore(objects);
    for (const auto& payment : objects.Payments()) held_ += payment.bytes;
  }

  SupervisorHooks Hooks() {
    return {.charge = [this](pid_t, std::uint32_t, std::uint64_t bytes) -> std::optional<bool> {
              if (nobody_decides) return {};
              if (held_ + bytes > kPieces * kPiece) return false;
              held_ += bytes;
              return true;
            },
            .give_back = [this](pid_t, std::uint32_t, std::uint64_t bytes) { held_ -= bytes; },
            .object = [](pid_t, const channel::ObjectEvent&) {},
            .ended = [](std::uint64_t) {},
            .refused = [](pid_t, const std::string&) {},
            .unknown = [](pid_t, const std::string&) {}};
  }
  std::uint64_t Held() const { return held_; }

  std::atomic<bool> nobody_decides = false;  // the daemon ends

 private:
  std::atomic<std::uint64_t> held_ = 0;
};

// Each round: all that it may have and not one piece more; with handles of its own choice, and of RM's. The line of
// what went wrong, or 0.
int Churn(const Rm& rm, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::array<std::uint32_t, kPieces> handles{};
    for (std::uint32_t i = 0; i < kPieces; ++i) {
      abi::MemoryParams params{};
      params.size = kPiece - 1;
      handles[i] = i % 2 == 0 ? 100 + i : 0;
      TENANT_CHECK(rm.Alloc(0x80, &handles[i], abi::kMemoryLocal, &params, sizeof params) == 0);
      TENANT_CHECK(params.size == kPiece && handles[i] != 0);
    }
    TENANT_CHECK(rm.Memory(99, kPiece) == abi::kNoMemory);
    for (const std::uint32_t handle : handles) TENANT_CHECK(rm.Free(handle) == 0);
  }
  return 0;
}

class SupervisorTakeoverTest : public GatedProgramTest {
 protected:
  static std::unique_ptr<Supervisor> Serve(Ledger& ledger, UniqueFd listener, UniqueFd memory) {
    auto record = TreeRecord::Open(std::move(memory));
    auto supervisor = Supervisor::Start(ledger.Hooks(), {}, std::move(*record), std::make_unique<SoftBoundary>());
    (*supervisor)->Add(std::move(listener));
    return std::move(*supervisor);
  }

  // A daemon that is killed when it comes to this step.
  static void ServeUntil(const std::string& step, int listener, int memory) {
    const pid_t daemon = fork();
    if (daemon == 0) {
      fault::wanted = step.c_str();
      fault::passages = 0;
      auto record = TreeRecord::Open(Again(memory));
      Ledger ledger(*record);
      const auto supervisor = Serve(ledger, Again(listener), Again(memory));
      for (;;) pause();
    }
    int status = 0;
    ASSERT_EQ(waitpid(daemon, &status, 0), daemon);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
};

TEST_F(SupervisorTakeoverTest, AKilledSupervisorCostsNothing) {
  const UniqueFd file(SoftBoundary::Open());
  Tenant tenant([&] { return Churn(Rm{file.Get()}, 40); });
  const UniqueFd listener = tenant.TakeListener();
  auto created = TreeRecord::Create({});
  const UniqueFd memory = Again(created->Fd());
  tenant.Go();
  for (const char* step : {"gate.call.received", "gate.call.begins", "gate.call.made", "gate.call.decided"}) {
    for (int number = 1; number <= 9; ++number)  // the calls of a round, frees and refusals among them
      ASSERT_NO_FATAL_FAILURE(ServeUntil(step + (":" + std::to_string(number)), listener.Get(), memory.Get())) << step;
  }
  Ledger ledger(*TreeRecord::Open(Again(memory.Get())));
  const auto supervisor = Serve(ledger, Again(listener.Get()), Again(memory.Get()));
  EXPECT_EQ(tenant.Wait(), 0);
  EXPECT_EQ(SoftBoundary::Objects(file.Get()), 0u) << "an allocation was made twice";
  EXPECT_EQ(ledger.Held(), 0u);
}

TEST_F(SupervisorTakeoverTest, ACallThatNobodyDecidesIsLeftToTheNext) {
  const UniqueFd file(SoftBoundary::Open());
  Tenant tenant([&] { return Churn(Rm{file.Get()}, 2); });
  const UniqueFd listener = tenant.TakeListener();
  auto created = TreeRecord::Create({});
  const UniqueFd memory = Again(created->Fd());
  Ledger ending(*created);
  ending.nobody_decides = true;
  auto first = Serve(ending, Again(listener.Get()), Again(memory.Get()));
  tenant.Go();
  WaitUntil([&] { return created->Call().Id() != 0; });
  first.reset();
  EXPECT_NE(created->Call().Id(), 0u);
  Ledger ledger(*created);
  const auto second = Serve(ledger, Again(listener.Get()), Again(memory.Get()));
  EXPECT_EQ(tenant.Wait(), 0);
}

TEST_F(SupervisorTakeoverTest, AChildOfAnEarlierDaemonsProgramIsFoundGone) {
  // Leaves without a free: the next supervisor has to find out that its client has ended.
  Tenant tenant([] {
    const Rm rm{SoftBoundary::Open()};
    TENANT_CHECK(rm.Memory(1, kPiece) == 0);
    for (;;) pause();
  });
  const UniqueFd listener = tenant.TakeListener();
  auto created = TreeRecord::Create({});
  const UniqueFd memory = Again(created->Fd());
  {
    Ledger ledger(*created);
    const auto first = Serve(ledger, Again(listener.Get()), Again(memory.Get()));
    tenant.Go();
    WaitUntil([&] { return ledger.Held() != 0; });
  }
  tenant.Kill();
  tenant.Wait();
  Ledger ledger(*TreeRecord::Open(Again(memory.Get())));
  EXPECT_EQ(ledger.Held(), kPiece);
  const auto second = Serve(ledger, Again(listener.Get()), Again(memory.Get()));
  WaitUntil([&] { return ledger.Held() == 0; });
}

// ---- without any supervisor ----

TEST_F(SupervisorTakeoverTest, WithoutADaemonCallsWaitAndThenFailUntilThereIsOne) {
  const UniqueFd file(SoftBoundary::Open());
  Tenant tenant([&] {
    const Rm rm{file.Get()};
    TENANT_CHECK(rm.Memory(1, kPiece) == -ENOSYS);
    WaitUntil([&] { return rm.Memory(1, kPiece) != -ENOSYS; });
    return Churn(rm, 1) == 0 ? __LINE__ : 0;  // one piece is taken
  });
  const UniqueFd listener = tenant.TakeListener();
  AnswerNotImplemented(listener.Get(), 1);  // of no call
  tenant.Go();
  pollfd call = {.fd = listener.Get(), .events = POLLIN};
  ASSERT_EQ(poll(&call, 1, -1), 1);
  // As the holder does when its patience is over.
  std::array<std::uint64_t, 64> notification{};
  ASSERT_EQ(ioctl(listener.Get(), SECCOMP_IOCTL_NOTIF_RECV, notification.data()), 0);
  AnswerNotImplemented(listener.Get(), notification[0]);
  auto record = TreeRecord::Create({});
  Ledger ledger(*record);
  const auto supervisor = Serve(ledger, Again(listener.Get()), Again(record->Fd()));
  EXPECT_EQ(tenant.Wait(), 0);
}

}  // namespace
}  // namespace tessera::guard
