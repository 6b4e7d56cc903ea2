// Shared by the tests of the planner: a GPU of forty chunks, in virtual time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "sched/testing/residency_world.h"

namespace tessera::sched {

// Each process has a vGPU of its own with the same number, unless a test says otherwise. At the end no law is broken.
class PlannerTest : public testing::Test {
 protected:
  using Answer = RoomAnswer::Kind;
  using Kind = ResidencyActionKind;
  using Reason = RoomAnswer::Reason;

  static constexpr std::uint64_t kChunk = 1ull << 30;

  PlannerTest() { world_.state.chunk = kChunk; }
  ~PlannerTest() override { EXPECT_THAT(world_.violations(), testing::IsEmpty()); }

  static testing::Matcher<ResidencyAction> Is(Kind kind, ProcessId process) {
    return testing::AllOf(testing::Field(&ResidencyAction::kind, kind),
                          testing::Field(&ResidencyAction::process, process));
  }

  ProcessResidence& Add(ProcessId id, std::uint64_t chunks, std::optional<std::uint64_t> limit = {}) {
    VGpuResidence& vgpu = world_.AddVGpu(static_cast<VgpuId>(id));
    if (limit) vgpu.limit = *limit * kChunk;
    return world_.AddProcess(static_cast<VgpuId>(id), id, chunks * kChunk);
  }
  ProcessResidence& AddBusy(ProcessId id, std::uint64_t chunks, std::optional<std::uint64_t> limit = {}) {
    Add(id, chunks, limit);
    world_.Work(id, true);
    return world_.Process(id);
  }
  RoomAnswer Allocate(ProcessId id, std::uint64_t chunks, bool pins = false) {
    return world_.Allocate(id, chunks * kChunk, pins);
  }
  ProcessResidence& Process(ProcessId id) { return world_.Process(id); }
  std::uint64_t Out(ProcessId id) { return world_.Process(id).swapped / kChunk; }

  ResidencyWorld world_{40 * kChunk};
};

}  // namespace tessera::sched
