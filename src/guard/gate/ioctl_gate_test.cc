// The gate without a filter: this process is the caller, and its memory changes when the test says so.
#include "guard/gate/ioctl_gate.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/size.h"
#include "guard/testing/fake_driver.h"

namespace {

// Called after each read of a program's memory, with its address.
std::function<void(std::uintptr_t)> after_read;

}  // namespace

// In front of the C library's, by which the gate reads: a hostile thread can change memory right after each read.
ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long locals, const iovec* remote,
                         unsigned long remotes, unsigned long flags) noexcept {
  const ssize_t read = syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
  if (after_read) after_read(reinterpret_cast<std::uintptr_t>(remote->iov_base));
  return read;
}

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

class IoctlGateTest : public testing::Test {
 protected:
  void SetUp() override {
    SupervisorHooks hooks;
    hooks.charge = [this](pid_t, std::uint32_t, std::uint64_t bytes) {
      charged_ += bytes;
      return true;
    };
    hooks.give_back = [this](pid_t, std::uint32_t, std::uint64_t bytes) { charged_ -= bytes; };
    hooks.object = [](pid_t, const channel::ObjectEvent&) {};
    hooks.ended = [](std::uint64_t) {};
    hooks.refused = [](pid_t, const std::string&) {};
    hooks.unknown = [](pid_t, const std::string&) {};
    auto gate = IoctlGate::Create(std::move(hooks), {}, driver_, record_);
    ASSERT_TRUE(gate.has_value());
    gate_.emplace(std::move(*gate));
  }
  void TearDown() override { after_read = nullptr; }

  template <typename Argument>
  GateAnswer Serve(unsigned number, const Argument& argument, const StillWaits& waits = [] { return true; }) {
    record_.Call().stage = CallInHand::Stage::kReceived;
    return gate_->Serve({.tid = getpid(),
                         .tree = 1,
                         .fd = file_.Get(),
                         .request = _IOC(_IOC_READ | _IOC_WRITE, 'F', number, sizeof argument),
                         .address = reinterpret_cast<std::uint64_t>(&argument)},
                        waits);
  }
  static abi::Alloc Allocation(std::uint32_t cls, const abi::MemoryParams& params) {
    return {.root = 0xc1d00001,
            .parent = 0x80,
            .object = 0,
            .cls = cls,
            .params = reinterpret_cast<std::uint64_t>(&params),
            .rights = 0,
            .params_bytes = sizeof params,
            .flags = 0,
            .status = 0xffff,
            .reserved = 0};
  }

  FakeDriver driver_;
  TreeRecord record_ = std::move(*TreeRecord::Create({}));
  std::uint64_t charged_ = 0;
  const UniqueFd file_{FakeDriver::Open()};
  std::optional<IoctlGate> gate_;
};

// The class decides whether an allocation is charged.
TEST_F(IoctlGateTest, AClassThatChangesAfterItWasReadIsNotExecuted) {
  abi::MemoryParams params{};
  params.size = 6 * kMiB;
  abi::Alloc alloc = Allocation(abi::kDevice, params);
  after_read = [&](std::uintptr_t address) {
    if (address == reinterpret_cast<std::uintptr_t>(&alloc)) alloc.cls = abi::kMemoryLocal;
  };
  Serve(abi::kAlloc, alloc);
  gate_->Done(true);
  EXPECT_EQ(driver_.Objects(), 1u) << "the device";
  EXPECT_EQ(driver_.MostBytesInUse(), 0u) << "memory that was not charged";
}

TEST_F(IoctlGateTest, ASizeThatChangesAfterItWasReadIsNotExecuted) {
  abi::MemoryParams params{};
  params.size = 2 * kMiB;
  abi::Alloc alloc = Allocation(abi::kMemoryLocal, params);
  after_read = [&](std::uintptr_t address) {
    if (address == reinterpret_cast<std::uintptr_t>(&params)) params.size = 512 * kMiB;
  };
  Serve(abi::kAlloc, alloc);
  gate_->Done(true);
  EXPECT_EQ(driver_.MostBytesInUse(), 2 * kMiB);
  EXPECT_EQ(charged_, 2 * kMiB);
}

// NV_MEMORY_ALLOCATION_PARAMS is what grew among the things that the gate reads: 120 bytes with 535, and a word more,
// 128 with its padding, from 550 on. [S] nvos.h of 535.104.05, 550.90.07, 570.124.06, 580.105.08 and 590.48.01; the
// requests (NVOS00, 02, 05, 21, 54, 55, 64) and the controls that driver_abi.h has are alike in all of them.
TEST_F(IoctlGateTest, MemoryIsCountedAndMadeWithTheParametersOfEachDriver) {
  const std::map<std::string, std::uint32_t> drivers = {
      {"535", 120}, {"550", 128}, {"570", 128}, {"580", 128}, {"590", 128}};
  std::uint64_t expected = 0;
  for (const auto& [driver, bytes] : drivers) {
    driver_.SetMemoryParams(bytes);
    for (const bool says_size : {true, false}) {  // libcuda says it; other libraries let the class tell
      alignas(abi::MemoryParams) std::array<std::byte, 136> room{};
      auto& params = reinterpret_cast<abi::MemoryParams&>(room);
      params.size = 6 * kMiB;
      const auto word = [&](std::size_t at) {
        std::uint32_t value = 0;
        std::memcpy(&value, room.data() + at, sizeof value);
        return value;
      };
      abi::Alloc alloc = Allocation(abi::kMemoryLocal, params);
      alloc.params_bytes = says_size ? bytes : 0;
      EXPECT_EQ(Serve(abi::kAlloc, alloc).result, 0) << driver;
      gate_->Done(true);
      EXPECT_EQ(alloc.status, std::uint32_t{abi::kOk}) << driver;
      EXPECT_EQ(charged_, expected += 6 * kMiB) << driver;
      EXPECT_EQ(driver_.BytesInUse(), expected) << driver;
      EXPECT_EQ(params.limit, 6 * kMiB - 1) << driver;
      EXPECT_EQ(word(bytes - 4), 1u) << driver << ": the driver's answer behind what Tessera knows";
      EXPECT_EQ(word(bytes), 0u) << driver << ": written behind its parameters";
    }
  }
}

// This process is in the place of the one that has the caller's number now.
TEST_F(IoctlGateTest, NothingIsWrittenForACallerThatIsGone) {
  abi::Control control{
      .client = 1, .object = 2, .command = 0x20801117, .flags = 0, .params = 0, .params_bytes = 0, .status = 0xffff};
  Serve(abi::kControl, control, [] { return false; });
  EXPECT_EQ(control.status, 0xffffu);
  Serve(abi::kControl, control);
  EXPECT_EQ(control.status, std::uint32_t{abi::kInsufficientPermissions});

  abi::MemoryParams params{};
  params.size = 1;
  abi::Alloc alloc = Allocation(abi::kMemoryLocal, params);
  int left = 1;  // it goes while the driver makes its memory
  Serve(abi::kAlloc, alloc, [&] { return left-- > 0; });
  gate_->Done(false);
  EXPECT_LT(left, 0) << "asked again before the answer";
  EXPECT_EQ(alloc.status, 0xffffu);
  EXPECT_EQ(alloc.object, 0u);
  EXPECT_EQ(params.size, 1u);
  EXPECT_GT(driver_.MostBytesInUse(), 0u);
  EXPECT_EQ(driver_.BytesInUse(), 0u);
}

}  // namespace
}  // namespace tessera::guard
