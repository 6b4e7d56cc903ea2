#include "server/figures/labels.h"

#include <gtest/gtest.h>

namespace tessera::server {
namespace {

TEST(Labels, WhatMetricsCanCarry) {
  EXPECT_TRUE(CheckLabels({}));
  EXPECT_TRUE(CheckLabels({{"namespace", "ml"}, {"pod", "llm-0"}, {"_x1", ""}, {std::string(63, 'k'), "v"}}));
  EXPECT_TRUE(CheckLabels({{"team", "a b=\"c\"\\,{}"}, {"name_", "M\u00fcnchen"}, {"long", std::string(253, 'x')}}));
}

TEST(Labels, WhatTheyCannotIsNamed) {
  const std::pair<Labels, const char*> wrong[] = {
      {{{"", "v"}}, "\"\""},
      {{{"Team", "v"}}, "\"Team\""},
      {{{"1st", "v"}}, "\"1st\""},
      {{{"a-b", "v"}}, "\"a-b\""},
      {{{"a.b", "v"}}, "\"a.b\""},
      {{{"\u00e9", "v"}}, "name of a label"},
      {{{"__name__", "v"}}, "\"__name__\""},
      {{{std::string(64, 'k'), "v"}}, "kkk"},
      {{{"vgpu", "v"}}, "of the metrics themselves"},
      {{{"job", "v"}}, "of the metrics themselves"},
      {{{"a", std::string(254, 'x')}}, "254 bytes"},
      {{{"a", "b\nc"}}, "printable"},
      {{{"a", std::string(1, '\0')}}, "printable"},
      {{{"a", "\x1b[2J"}}, "printable"},
      {{{"a", "\xff"}}, "printable"},
      {{{"a", "1"}, {"b", "1"}, {"c", "1"}, {"d", "1"}, {"e", "1"}, {"f", "1"}, {"g", "1"}, {"h", "1"}, {"i", "1"}},
       "9"}};
  for (const auto& [labels, why] : wrong) {
    const auto checked = CheckLabels(labels);
    ASSERT_FALSE(checked) << why;
    EXPECT_EQ(checked.error().code, EINVAL);
    EXPECT_NE(checked.error().message.find(why), std::string::npos) << checked.error().message;
    EXPECT_FALSE(checked.error().hint.empty()) << why;
  }
}

TEST(Labels, AreTextForPeople) {
  EXPECT_EQ(FormatLabels({}), "");
  EXPECT_EQ(FormatLabels({{"team", "b"}, {"pod", "a"}}), "pod=a, team=b");
}

}  // namespace
}  // namespace tessera::server
