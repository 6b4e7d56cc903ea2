#include "cli/bench/gpu_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"

namespace tessera::cli {
namespace {

using client::Json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

GpuFigures Whole() {
  return {.device = "NVIDIA H100 80GB HBM3",
          .driver = "580.1",
          .date = "2026-11-26",
          .memory = 79 * kGiB,
          .context = 530 * kMiB,
          .sms = 132,
          .freeze_us = 610,
          .thaw_us = 335,
          .switch_us = 190.5,
          .slice_us = 2000,
          .out_per_s = 54e9,
          .in_per_s = 55e9,
          .bandwidth = 3e12,
          .compute = PairFigures{100, 98, 96},
          .sweeps = PairFigures{2.5e12, 1.5e12, 1.5e12}};
}

TEST(GpuFigures, BecomeAModelThatItsFileGivesBack) {
  const GpuFigures figures = Whole();
  const auto model = plan::ParseGpuModel(plan::FormatGpuModel(ModelOf(figures), RemarksOn(figures)), "f.toml");
  ASSERT_TRUE(model) << model.error().Text();
  EXPECT_EQ(model->name, "h100-80gb-hbm3");
  EXPECT_EQ(model->title, figures.device);
  EXPECT_THAT(model->source, AllOf(HasSubstr("measured 2026-11-26"), HasSubstr("580.1")));
  EXPECT_EQ(model->memory, figures.memory);
  EXPECT_EQ(model->sms, 132u);
  EXPECT_EQ(model->bandwidth, 3e12);
  EXPECT_EQ(model->steering.freeze, 610 * kMicrosecond);
  EXPECT_EQ(model->steering.switch_cost, 190'500);
  EXPECT_EQ(model->moves.in_bytes_per_second, 55e9);
  EXPECT_EQ(model->moves.context, 530 * kMiB);
  EXPECT_EQ(model->space_speed, 0.97);
}

TEST(GpuFigures, WhatWasNotMeasuredIsAsTheDefaultsAndTold) {
  GpuFigures figures = Whole();
  figures.freeze_us = figures.switch_us = figures.out_per_s = {};
  figures.compute = figures.sweeps = {};
  figures.missing = {"Because of that."};
  const plan::GpuModel model = ModelOf(figures);
  EXPECT_EQ(model.steering.freeze, plan::SteeringCosts().freeze);
  EXPECT_EQ(model.moves.out_bytes_per_second, plan::MoveCosts().out_bytes_per_second);
  EXPECT_EQ(model.space_speed, 1);
  EXPECT_THAT(RemarksOn(figures), Contains("Because of that."));
}

TEST(GpuFigures, ASoftGpuIsNoGpu) {
  GpuFigures figures = Whole();
  figures.soft = true;
  EXPECT_EQ(ModelOf(figures).name, "soft");
  EXPECT_THAT(ModelOf(figures).source, HasSubstr("of no GPU"));
  EXPECT_THAT(RemarksOn(figures), Contains(HasSubstr("nothing of any GPU")));
  EXPECT_THAT(RemarksOn(Whole()), Not(Contains(HasSubstr("nothing of any GPU"))));
}

TEST(GpuFigures, RemarksCompareSweepsWithTheModel) {
  // Each alone has 5/6 of the bandwidth, so both together could have 0.6 of that each.
  EXPECT_THAT(RemarksOn(Whole()), Contains(AllOf(HasSubstr("have 0.600 of"), HasSubstr("it is 0.600"))));
}

TEST(GpuFigures, SwitchesAreWhatSlicesLackOfTheSpeedAlone) {
  EXPECT_NEAR(SwitchMicroseconds(2000, 1000, 909.09), 200, 0.1);
  EXPECT_EQ(SwitchMicroseconds(2000, 1000, 1001), 0);  // noise
  EXPECT_EQ(SwitchMicroseconds(2000, 1000, 0), 0);
}

TEST(GpuFigures, NamesOfModels) {
  EXPECT_EQ(ModelName("NVIDIA H200"), "h200");
  EXPECT_EQ(ModelName("Tesla V100-SXM2-32GB"), "v100-sxm2-32gb");
  EXPECT_EQ(ModelName("NVIDIA L40S "), "l40s");
}

TEST(GpuFigures, OthersAreTheUnmanagedOfThisGpu) {
  const Json processes = Json::parse(R"({"processes": [
      {"pid": 1, "name": "mine", "gpu": 0, "vgpu": "a"}, {"pid": 2, "name": "python", "gpu": 0, "vgpu": null},
      {"pid": 3, "name": "far", "gpu": 1, "vgpu": null}, {"pid": 4, "gpu": 0, "vgpu": null}]})");
  EXPECT_EQ(OthersOn(processes, 0), "python (2), 4");
  EXPECT_EQ(OthersOn(processes, 2), "");
  EXPECT_EQ(OthersOn(Json(), 0), "");
}

}  // namespace
}  // namespace tessera::cli
