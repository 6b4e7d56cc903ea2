#include "soft/checkpoint/checkpoint_settings.h"

#include <gtest/gtest.h>

namespace tessera::soft {
namespace {

TEST(CheckpointSettings, TimesAndFailures) {
  auto read = ParseCheckpointSettings(
      "checkpoint=300ms+2GB/s,restore=0.2+5600MB/s,restore=CUDA_ERROR_OUT_OF_MEMORY:always:lost,lock=1s");
  ASSERT_TRUE(read) << read.error().Text();
  CheckpointSettings& settings = *read;
  EXPECT_EQ(settings[CheckpointStep::kCheckpoint].time, 300 * kMillisecond);
  EXPECT_EQ(settings[CheckpointStep::kCheckpoint].bytes_per_second, 2'000'000'000u);
  EXPECT_EQ(settings[CheckpointStep::kCheckpoint].error, cuda::CUDA_SUCCESS);
  const StepSettings& restore = settings[CheckpointStep::kRestore];
  EXPECT_EQ(restore.time, 200 * kMillisecond);
  EXPECT_EQ(restore.bytes_per_second, 5'600'000'000u);
  EXPECT_EQ(restore.error, cuda::CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(restore.always && restore.lost);
  EXPECT_EQ(settings[CheckpointStep::kLock].time, kSecond);
  EXPECT_EQ(settings[CheckpointStep::kLock].bytes_per_second, 0u);
  EXPECT_EQ(settings.size(), 3u);
}

TEST(CheckpointSettings, NothingIsNoSetting) {
  const auto read = ParseCheckpointSettings("");
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->empty());
}

TEST(CheckpointSettings, WhatIsWrongIsNamed) {
  for (const char* item : {"checkpoint", "stop=1s", "lock=fast", "lock=1s+2GB", "lock=1s+0/s", "lock=1s+2GB/s+3GB/s",
                           "lock=CUDA_ERROR_NONE_SUCH", "lock=CUDA_ERROR_UNKNOWN:often", "lock="}) {
    const auto read = ParseCheckpointSettings(std::string("restore=1s,") + item);
    ASSERT_FALSE(read) << item;
    EXPECT_EQ(read.error().code, EINVAL);
    EXPECT_NE(read.error().Text().find(std::string("'") + item + "'"), std::string::npos) << read.error().Text();
  }
  EXPECT_FALSE(ParseCheckpointSettings("restore=1s,"));
}

}  // namespace
}  // namespace tessera::soft
