#include "shim/nvml/nvml_abi.h"

#include <gtest/gtest.h>

#if __has_include(<nvml.h>)
#include <nvml.h>
#define SAME(ours, theirs) static_assert(sizeof(tessera::nvml::ours) == sizeof(theirs))
SAME(Memory, nvmlMemory_t);
SAME(MemoryV2, nvmlMemory_v2_t);
SAME(ProcessInfoV1, nvmlProcessInfo_v1_t);
SAME(ProcessInfo, nvmlProcessInfo_t);
SAME(ProcessDetail, nvmlProcessDetail_v1_t);
SAME(ProcessDetailList, nvmlProcessDetailList_v1_t);
SAME(Utilization, nvmlUtilization_t);
SAME(ProcessUtilization, nvmlProcessUtilizationSample_t);
static_assert(offsetof(tessera::nvml::MemoryV2, used) == offsetof(nvmlMemory_v2_t, used));
static_assert(offsetof(tessera::nvml::ProcessInfo, used_memory) == offsetof(nvmlProcessInfo_t, usedGpuMemory));
#endif

namespace tessera::nvml {
namespace {

TEST(NvmlAbi, FrozenSizes) {
  EXPECT_EQ(sizeof(Memory), 24u);
  EXPECT_EQ(sizeof(MemoryV2), 40u);
  EXPECT_EQ(sizeof(ProcessInfoV1), 16u);
  EXPECT_EQ(sizeof(ProcessInfo), 24u);
  EXPECT_EQ(sizeof(ProcessDetail), 32u);
  EXPECT_EQ(sizeof(ProcessDetailList), 24u);
  EXPECT_EQ(sizeof(ProcessUtilization), 32u);
}

}  // namespace
}  // namespace tessera::nvml
