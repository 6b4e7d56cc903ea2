#include "server/checkpoint/obstacles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::server {
namespace {

using testing::HasSubstr;

class ObstaclesTest : public testing::Test {
 protected:
  ObstaclesTest() {
    vgpu_.spec.name = "team";
    process_.vgpu = &vgpu_;
    process_.who.program = "train";
  }
  // Why it may not leave; empty: it may.
  std::string Why() {
    const Process* processes[] = {&process_};
    const auto may = MayLeave(process_.pid, processes);
    if (!may) EXPECT_EQ(may.error().code, ENOTSUP);
    return may ? "" : may.error().message;
  }

  VGpu vgpu_;
  Process process_{*SharedPage::Create(0), 4711};
};

TEST_F(ObstaclesTest, AnOrdinaryProgramMayLeave) { EXPECT_EQ(Why(), ""); }

TEST_F(ObstaclesTest, WhatOthersHaveIsNamed) {
  struct Case {
    wire::PinReason reason;
    const char* word;
  };
  for (const Case& each :
       {Case{wire::PinReason::kExported, "IPC"}, Case{wire::PinReason::kRegistered, "dma-buf"},
        Case{wire::PinReason::kMulticast, "multicast"}, Case{wire::PinReason::kManaged, "managed"}}) {
    auto& bytes = process_.page->pinned_by[static_cast<std::size_t>(each.reason)];
    bytes = 2u << 20;
    EXPECT_THAT(Why(), HasSubstr(each.word));
    EXPECT_THAT(Why(), HasSubstr("process 4711 (train)"));
    EXPECT_THAT(Why(), HasSubstr("2 MiB"));
    bytes = 0;
  }
  for (const wire::PinReason reason : {wire::PinReason::kSmall, wire::PinReason::kArray, wire::PinReason::kPool,
                                       wire::PinReason::kVmm, wire::PinReason::kGraph, wire::PinReason::kUnpaged})
    process_.page->pinned_by[static_cast<std::size_t>(reason)] = 2u << 20;
  EXPECT_EQ(Why(), "");  // the driver saves these
}

TEST_F(ObstaclesTest, WhatIsOfOthersIsNamed) {
  for (const auto& [tie, word] :
       {std::pair(wire::Tie::kHostMemory, "host memory by handle"), std::pair(wire::Tie::kImported, "another program"),
        std::pair(wire::Tie::kExternal, "graphics API")}) {
    process_.page->ties = static_cast<std::uint32_t>(tie);
    EXPECT_THAT(Why(), HasSubstr(word));
  }
}

TEST_F(ObstaclesTest, ProgramsThatNobodyCanHoldStay) {
  process_.who.guest = true;
  EXPECT_THAT(Why(), HasSubstr("without Tessera's libcuda"));
  process_.who.guest = false;
  process_.who.guarded = true;
  EXPECT_THAT(Why(), HasSubstr("kernel gate"));
  process_.who.guarded = false;
  vgpu_.spec.space = "shared";
  EXPECT_THAT(Why(), HasSubstr("MPS"));
}

TEST_F(ObstaclesTest, ThereHasToBeOne) {
  EXPECT_EQ(MayLeave(4711, {}).error().code, ESRCH);
  const Process* twice[] = {&process_, &process_};
  EXPECT_THAT(MayLeave(4711, twice).error().message, HasSubstr("two vGPUs"));
}

}  // namespace
}  // namespace tessera::server
