#include "cli/vgpu/use_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera::cli {
namespace {

using client::Json;

constexpr Nanos kBegin = 1'764'151'200 * kSecond;

Json Used(const char* name, int gpu, std::uint64_t busy_us, std::uint64_t waited_us, std::uint64_t mib) {
  return {{"name", name},
          {"gpu", gpu},
          {"compute_busy_us", busy_us},
          {"compute_waited_us", waited_us},
          {"memory_current_bytes", mib << 20}};
}

TEST(UseRecord, RowsOfTheTimeBetweenTwoAnswers) {
  UseRecord record;
  EXPECT_EQ(record.Rows({Used("a", 0, 5'000'000, 0, 100), Used("b", 1, 0, 0, 0)}, kBegin), "");
  EXPECT_EQ(record.Rows({Used("a", 0, 7'000'000, 3'000'000, 200), Used("b", 1, 12'345, 0, 7)}, kBegin + 10 * kSecond),
            "1764151200.000,a,0,50.00,200\n1764151200.000,b,1,0.12,7\n");
  EXPECT_EQ(record.Rows(Json::array({Used("a", 0, 7'000'000, 3'000'000, 200)}), kBegin + 20 * kSecond),
            "1764151210.000,a,0,0.00,200\n");
}

TEST(UseRecord, VGpusThatAreNew) {
  UseRecord record;
  EXPECT_EQ(record.Rows(Json::array({Used("a", 0, 900'000'000, 0, 1)}), kBegin), "");
  // One that was made meanwhile, one that was made anew, and one that had more than all the time.
  EXPECT_EQ(
      record.Rows({Used("a", 0, 1'000'000, 0, 1), Used("new", 0, 2'000'000, 0, 1), Used("c", 0, 99'000'000, 0, 1)},
                  kBegin + 10 * kSecond),
      "1764151200.000,a,0,10.00,1\n1764151200.000,new,0,20.00,1\n1764151200.000,c,0,100.00,1\n");
}

TEST(UseRecord, AnswersThatSayNothing) {
  UseRecord record;
  EXPECT_EQ(record.Rows(Json::array(), kBegin), "");
  EXPECT_EQ(record.Rows(Json(), kBegin + kSecond), "");
  EXPECT_EQ(record.Rows(Json::array({Json::object()}), kBegin + 2 * kSecond), "");
}

}  // namespace
}  // namespace tessera::cli
