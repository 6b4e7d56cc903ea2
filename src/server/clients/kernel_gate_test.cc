// A daemon goes on with programs behind the kernel gate that a gate holder kept.
#include "server/clients/kernel_gate.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/process/process_start.h"
#include "base/seqpacket.h"
#include "base/testing/bystander.h"
#include "base/testing/temporary_folder.h"
#include "guard/holder/gate_holder.h"
#include "guard/holder/holder_message.h"
#include "server/record/events.h"
#include "server/testing/test_daemon.h"

namespace tessera::server {
namespace {

constexpr uid_t kOne = 61001, kAnother = 61002;

class KernelGateTest : public testing::Test {
 protected:
  void SetUp() override {
    TestDaemon daemon({.run_dir = run_dir_.path()});
    ASSERT_TRUE(daemon.Api().For(kAnother, {}).Create({.name = "a"}));
  }
  void TearDown() override {
    ended_ = true;
    if (holder_.joinable()) holder_.join();
  }

  // A holder keeps the program, which has a MiB of memory, for the next daemon.
  void Keep(uid_t uid, std::uint64_t start, bool by_operator = false) {
    auto record = guard::TreeRecord::Create(
        {.vgpus = "a", .name = "program", .pid = program_.Pid(), .uid = uid, .by_operator = by_operator});
    guard::MemoryObjects objects(&*record);
    record->Put({.client = 1, .process = program_.Pid(), .holder = program_.Pid(), .fd = 3, .start = start});
    objects.SetClient(1, program_.Pid());
    objects.Add(1, 1, 0x80, kMiB, 0);
    memory_.Reset(dup(record->Fd()));
    const std::string path = run_dir_.path() + "/gates.sock";
    holder_ = std::thread([this, path, listener = ListenSeqpacket(path.c_str(), 4)]() mutable {
      guard::GateHolder holder(std::move(listener), path);
      while (!ended_ && holder.RunOnce(10 * kMillisecond)) {
      }
    });
    const UniqueFd before = ConnectSeqpacket(path.c_str());  // an earlier daemon
    const std::array files = {listener_.Get(), memory_.Get()};
    SendPacket(before.Get(), guard::BytesOf({.type = guard::HolderType::kHello, .number = kSecond}));
    std::array<std::byte, sizeof(guard::HolderMessage)> greeting;
    ASSERT_GT(ReceivePacket(before.Get(), greeting), 0);
    SendPacket(before.Get(), guard::BytesOf({.type = guard::HolderType::kHold, .number = 1}), files);
  }
  std::vector<pid_t> ProgramsOfA(TestDaemon& daemon) { return daemon.Report("a").processes; }
  std::string NamesInTheRecord() const { return guard::TreeRecord::Open(UniqueFd(dup(memory_.Get())))->Owner().vgpus; }

  const TemporaryFolder run_dir_;
  const Bystander program_;
  UniqueFd memory_;                                   // of the record
  const UniqueFd listener_{eventfd(0, EFD_CLOEXEC)};  // in the place of one that tells of no call
  std::thread holder_;
  std::atomic<bool> ended_ = false;
};

TEST_F(KernelGateTest, GoesOnWithThemInTheirVGpus) {
  Keep(kAnother, *ProcessStart(program_.Pid()));
  TestDaemon daemon({.run_dir = run_dir_.path()});
  EXPECT_EQ(ProgramsOfA(daemon), std::vector{program_.Pid()});
}

// The vGPU that the record names may have gone, and another user's may have its name.
TEST_F(KernelGateTest, PutsNobodyIntoAnotherUsersVGpu) {
  Keep(kOne, *ProcessStart(program_.Pid()));
  TestDaemon daemon({.run_dir = run_dir_.path()});
  EXPECT_TRUE(ProgramsOfA(daemon).empty());
}

TEST_F(KernelGateTest, WhatAnOperatorPutIntoAVGpuStaysThere) {
  Keep(kOne, *ProcessStart(program_.Pid()), /*by_operator=*/true);
  TestDaemon daemon({.run_dir = run_dir_.path()});
  EXPECT_EQ(ProgramsOfA(daemon), std::vector{program_.Pid()});
}

TEST_F(KernelGateTest, TheRecordDoesNotNameAVGpuThatWasRemoved) {
  Keep(kAnother, *ProcessStart(program_.Pid()));
  TestDaemon daemon({.run_dir = run_dir_.path()});
  ASSERT_EQ(NamesInTheRecord(), "a");
  ASSERT_TRUE(daemon.Api().Remove("a", /*force=*/true));
  EXPECT_EQ(NamesInTheRecord(), "");
}

// The process of the record has ended, and another one has its pid.
TEST_F(KernelGateTest, ChargesNoOtherProcessOfTheSamePid) {
  Keep(kAnother, *ProcessStart(program_.Pid()) + 1);
  TestDaemon daemon({.run_dir = run_dir_.path()});
  EXPECT_TRUE(ProgramsOfA(daemon).empty());
  EXPECT_EQ(daemon.Report("a").memory_current, 0u);
}

TEST_F(KernelGateTest, AHolderThatDoesNotAnswerIsTold) {
  ListenSeqpacket((run_dir_.path() + "/gates.sock").c_str(), 4).Reset();  // it was killed
  const std::uint64_t before = events::Last();
  TestDaemon daemon({.run_dir = run_dir_.path()});
  bool told = false;
  for (const Event& event : events::After(before, 100).events)
    told |= event.text.find("gate holder") != std::string::npos;
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace tessera::server
