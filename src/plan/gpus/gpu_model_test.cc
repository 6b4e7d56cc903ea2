#include "plan/gpus/gpu_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/size.h"
#include "base/testing/temporary_folder.h"

namespace tessera::plan {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

const char kSmall[] =
    "name = \"x\"\ntitle = \"X\"\nsource = \"none\"\nmemory = \"80G\"\nsms = 10\nbandwidth_gb_s = 2000\n";

std::string ErrorOf(const std::string& text) {
  const auto model = ParseGpuModel(text, "f.toml");
  return model ? "none" : model.error().Text();
}

TEST(GpuModel, ReadsItsKeysWithTheirUnits) {
  const auto model = ParseGpuModel(std::string(kSmall) +
                                       "space_speed = 0.9\n[steering]\nfreeze_us = 1.5\nswitch_in_slice = true\n"
                                       "[moves]\nin_gb_s = 12\ncontext = \"512M\"\n[tokens]\nhand_over_us = 7\n",
                                   "f.toml");
  ASSERT_TRUE(model) << model.error().Text();
  EXPECT_EQ(model->memory, 80 * kGiB);
  EXPECT_EQ(model->sms, 10u);
  EXPECT_EQ(model->bandwidth, 2000e9);
  EXPECT_EQ(model->space_speed, 0.9);
  EXPECT_EQ(model->steering.freeze, 1500);
  EXPECT_TRUE(model->steering.switch_in_slice);
  EXPECT_EQ(model->steering.thaw, SteeringCosts().thaw);  // what a file leaves out
  EXPECT_EQ(model->moves.in_bytes_per_second, 12e9);
  EXPECT_EQ(model->moves.context, 512 * kMiB);
  const GpuSpec spec = model->Spec(TimeBy::kTokens);
  EXPECT_EQ(spec.time_by, TimeBy::kTokens);
  EXPECT_EQ(spec.memory, 80 * kGiB);
  EXPECT_EQ(spec.token_costs.hand_over, 7 * kMicrosecond);
  EXPECT_EQ(spec.steering_costs.freeze, 1500);
  EXPECT_EQ(spec.moves.context, 512 * kMiB);
}

TEST(GpuModel, NamesTheLineOfWhatIsWrong) {
  const std::string small = kSmall;
  EXPECT_THAT(ErrorOf(small + "sm = 3\n"),
              AllOf(HasSubstr("f.toml:7: unknown key sm"), HasSubstr("did you mean sms?")));
  EXPECT_THAT(ErrorOf(small + "[steering]\nfreeze = 3\n"),
              AllOf(HasSubstr("f.toml:8: unknown key steering.freeze"), HasSubstr("steering.freeze_us")));
  for (const char* row : {"speed = -1", "speed = nan", "speed = \"1\"", "space_speed = 0.4", "moves = 3",
                          "steering.thaw_us = -0.1", "steering.thaw_us = 1e9", "steering.switch_in_slice = 1",
                          "moves.out_gb_s = 0", "moves.batch = \"0\"", "moves.batch = 5", "moves.context = \"-1\""})
    EXPECT_THAT(ErrorOf(small + row + "\n"), AllOf(HasSubstr("f.toml:7: "), HasSubstr("must be"))) << row;
  EXPECT_THAT(ErrorOf("name = \"x\"\nsms = 0\n"), HasSubstr("f.toml:2: sms must be"));
  EXPECT_THAT(ErrorOf("name = \"x\n"), HasSubstr("f.toml:1: "));
  EXPECT_THAT(ErrorOf("name = \"x\"\n"), HasSubstr("is missing"));
  EXPECT_THAT(ErrorOf(small + "moves.context = \"80G\"\n"), HasSubstr("leaves nothing"));
}

TEST(GpuModel, WhatIsWrittenReadsTheSame) {
  GpuModel model;
  model.name = "a \"b\"";
  model.title = "c\\d";
  model.source = "e";
  model.memory = 3 * kGiB + 5;
  model.sms = 7;
  model.bandwidth = 1234.5e9;
  model.space_speed = 0.75;
  model.steering.switch_cost = 1250;
  model.steering.switch_in_slice = true;
  model.moves.out_bytes_per_second = 0.5e9;
  model.moves.context = 0;
  const std::string text = FormatGpuModel(model, {"first", "second"});
  EXPECT_THAT(text, testing::StartsWith("# first\n# second\nname = "));
  const auto read = ParseGpuModel(text, "f.toml");
  ASSERT_TRUE(read) << read.error().Text() << text;
  EXPECT_EQ(FormatGpuModel(*read, {"first", "second"}), text);
  EXPECT_EQ(read->name, model.name);
  EXPECT_EQ(read->title, model.title);
  EXPECT_EQ(read->memory, model.memory);
  EXPECT_EQ(read->steering.switch_cost, 1250);
  EXPECT_EQ(read->moves.out_bytes_per_second, 0.5e9);
}

TEST(GpuModel, TheKnownOnesAreReadAndSayWhereTheyComeFrom) {
  EXPECT_THAT(GpuModelNames(), testing::IsSupersetOf({"a100-80", "h100", "h200", "l40s"}));
  for (const std::string& name : GpuModelNames()) {
    const auto model = FindGpuModel(name);
    ASSERT_TRUE(model) << model.error().Text();
    EXPECT_EQ(model->name, name);
    EXPECT_THAT(model->source, testing::AnyOf(HasSubstr("measured"), HasSubstr("estimated"))) << name;
    EXPECT_GT(model->moves.context, 0u) << name;
  }
  EXPECT_EQ(FindGpuModel("H200")->speed, 1);
}

TEST(GpuModel, IsFoundByNameOrFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(FindGpuModel(folder.File("mine.toml", kSmall))->title, "X");
  const auto unknown = FindGpuModel("h300");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ENOENT);
  EXPECT_THAT(unknown.error().Text(), AllOf(HasSubstr("'h300'"), HasSubstr("h200")));
  EXPECT_EQ(FindGpuModel("./nowhere.toml").error().code, ENOENT);
  EXPECT_FALSE(FindGpuModel(folder.path()));  // a folder
}

}  // namespace
}  // namespace tessera::plan
