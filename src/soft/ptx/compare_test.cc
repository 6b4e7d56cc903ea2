// setp, set, selp, slct and mov.
#include <bit>
#include <cmath>

#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

std::string CompareIntoWord(const std::string& comparison, const char* load, const char* name) {
  return "ld.global." + std::string(load) + " " + name + "3, [%l0]; ld.global." + load + " " + name + "4, [%l0+8];" +
         "setp." + comparison + " %p1, " + name + "3, " + name +
         "4; selp.u64 %l9, 1, 0, %p1; st.global.u64 [%l1], %l9;";
}

template <typename T>
void ExpectIntegers(const std::string& type, const char* load, const char* name) {
  const auto rows = ManyRows();
  const auto expect = [&](const std::string& comparison, bool (*holds)(T, T)) {
    const auto results = Compute(CompareIntoWord(comparison + "." + type, load, name), rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(results[i][0], holds(static_cast<T>(rows[i][0]), static_cast<T>(rows[i][1]))) << comparison << type;
    }
  };
  expect("eq", [](T a, T b) { return a == b; });
  expect("ne", [](T a, T b) { return a != b; });
  expect("lt", [](T a, T b) { return a < b; });
  expect("le", [](T a, T b) { return a <= b; });
  expect("gt", [](T a, T b) { return a > b; });
  expect("ge", [](T a, T b) { return a >= b; });
  if (std::is_signed_v<T>) return;
  expect("lo", [](T a, T b) { return a < b; });
  expect("ls", [](T a, T b) { return a <= b; });
  expect("hi", [](T a, T b) { return a > b; });
  expect("hs", [](T a, T b) { return a >= b; });
}

TEST(Compare, Integers) {
  ExpectIntegers<std::int32_t>("s32", "b32", "%r");
  ExpectIntegers<std::uint32_t>("u32", "b32", "%r");
  ExpectIntegers<std::int64_t>("s64", "b64", "%l");
  ExpectIntegers<std::uint16_t>("u16", "b16", "%h");
}

TEST(Compare, FloatsAndNan) {
  std::vector<Row> rows;
  for (const float a : {0.0f, -0.0f, 1.0f, -INFINITY, NAN}) {
    for (const float b : {0.0f, 1.0f, NAN}) {
      rows.push_back({std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)});
    }
  }
  const auto expect = [&rows](const std::string& comparison, bool (*holds)(float, float)) {
    const auto results = Compute(CompareIntoWord(comparison + ".f32", "f32", "%f"), rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto a = std::bit_cast<float>(static_cast<std::uint32_t>(rows[i][0]));
      const auto b = std::bit_cast<float>(static_cast<std::uint32_t>(rows[i][1]));
      EXPECT_EQ(results[i][0], holds(a, b)) << comparison << " " << a << " " << b;
    }
  };
  expect("eq", [](float a, float b) { return a == b; });
  expect("ne", [](float a, float b) { return a < b || a > b; });  // false for a NaN, other than in C++
  expect("lt", [](float a, float b) { return a < b; });
  expect("geu", [](float a, float b) { return !(a < b); });
  expect("neu", [](float a, float b) { return a != b; });
  expect("equ", [](float a, float b) { return !(a < b || a > b); });
  expect("num", [](float a, float b) { return !std::isnan(a) && !std::isnan(b); });
  expect("nan", [](float a, float b) { return std::isnan(a) || std::isnan(b); });
}

TEST(Compare, CombinesWithAPredicateAndGivesBothAnswers) {
  const std::vector<Row> rows = {{1, 2, 0}, {1, 2, 1}, {2, 1, 0}, {2, 1, 1}};
  for (const std::string combination : {"and", "or", "xor"}) {
    const auto results = Compute(
        "ld.global.s32 %r3, [%l0]; ld.global.s32 %r4, [%l0+8]; ld.global.s32 %r5, [%l0+16];"
        "setp.ne.s32 %p1, %r5, 0; setp.lt." +
            combination +
            ".s32 %p2|%p3, %r3, %r4, !%p1;"
            "selp.u64 %l3, 1, 0, %p2; selp.u64 %l4, 1, 0, %p3;"
            "st.global.v2.u64 [%l1], {%l3, %l4};",
        rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const bool less = rows[i][0] < rows[i][1], c = rows[i][2] == 0;
      const auto combine = [&](bool a) {
        return combination == "and" ? a && c : combination == "or" ? a || c : a != c;
      };
      EXPECT_EQ(results[i][0], combine(less)) << combination << i;
      EXPECT_EQ(results[i][1], combine(!less)) << combination << i;
    }
  }
}

TEST(Compare, SetAndSelect) {
  const std::vector<Row> rows = {{5, 7}, {7, 5}, {0x80000001, 5}};
  const auto results = Compute(R"(
    ld.global.s32 %r3, [%l0]; ld.global.s32 %r4, [%l0+8];
    set.lt.u32.s32 %r5, %r3, %r4; set.gt.f32.s32 %f3, %r3, %r4;
    slct.s32.s32 %r6, 10, 20, %r3;
    setp.lt.s32 %p1, %r3, %r4; selp.b32 %r7, %r3, %r4, !%p1;
    not.pred %p2, %p1; xor.pred %p2, %p2, %p1; and.pred %p3, %p1, !%p2; mov.pred %p4, 1; or.pred %p3, %p3, !%p4;
    selp.u64 %l4, 1, 0, %p2; selp.u64 %l5, 1, 0, %p3;
    st.global.u32 [%l1], %r5; st.global.f32 [%l1+8], %f3; st.global.u32 [%l1+16], %r6; st.global.u32 [%l1+24], %r7;
    st.global.u64 [%l1+32], %l4; st.global.u64 [%l1+40], %l5;)",
                               rows);
  EXPECT_EQ(results[0], (Row{~0u, 0, 10, 7, 1, 0}));
  EXPECT_EQ(results[1], (Row{0, 0x3f800000, 10, 7, 1, 0}));
  EXPECT_EQ(results[2], (Row{~0u, 0, 20, 5, 1, 0}));
}

TEST(Move, PacksAndUnpacks) {
  const std::vector<Row> rows = {{0x1122334455667788}};
  const auto results = Compute(R"(
    ld.global.u64 %l3, [%l0];
    mov.b64 {%r3, %r4}, %l3; mov.b64 %l4, {%r4, %r3}; st.global.u64 [%l1], %l4;
    mov.b64 {%h1, %h2, %h3, %h4}, %l3; mov.b64 %l4, {%h4, %h3, %h2, %h1}; st.global.u64 [%l1+8], %l4;
    mov.b32 {%h1, _}, %r3; mov.b32 %r5, {%h1, 0x1234}; st.global.u32 [%l1+16], %r5;
    mov.b32 %r6, 0f3F800000; mov.b32 %f3, %r6; add.f32 %f3, %f3, 1.5; st.global.f32 [%l1+24], %f3;
    mov.u32 %r7, WARP_SZ; st.global.u32 [%l1+32], %r7;)",
                               rows);
  EXPECT_EQ(results[0], (Row{0x5566778811223344, 0x7788556633441122, 0x12347788, 0x40200000, 32}));
}

TEST(Move, SpecialRegisters) {
  Device device;
  const auto module = device.Load(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry test(.param .u64 out) {
  .reg .b32 %r<40>; .reg .b64 %l<4>;
  ld.param.u64 %l0, [out];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z;
  mov.u32 %r3, %ntid.x; mov.u32 %r4, %ntid.y; mov.u32 %r5, %ntid.z;
  mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z;
  mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y; mov.u32 %r11, %nctaid.z;
  mov.u32 %r12, %laneid; mov.u32 %r13, %warpid; mov.u32 %r14, %smid; mov.u32 %r15, %nsmid;
  mov.u32 %r16, %lanemask_lt; mov.u32 %r17, %lanemask_ge; mov.u32 %r18, %dynamic_smem_size; mov.u64 %l1, %gridid;
  // The number of this thread among all of the grid.
  mad.lo.u32 %r20, %r8, %r10, %r7; mad.lo.u32 %r20, %r20, %r9, %r6;
  mad.lo.u32 %r20, %r20, %ntid.z, %r2; mad.lo.u32 %r20, %r20, %r4, %r1; mad.lo.u32 %r20, %r20, %r3, %r0;
  mul.wide.u32 %l2, %r20, 80;
  add.s64 %l0, %l0, %l2;
  st.global.v4.u32 [%l0], {%r0, %r1, %r2, %r3}; st.global.v4.u32 [%l0+16], {%r4, %r5, %r6, %r7};
  st.global.v4.u32 [%l0+32], {%r8, %r9, %r10, %r11}; st.global.v4.u32 [%l0+48], {%r12, %r13, %r14, %r15};
  st.global.v2.u32 [%l0+64], {%r16, %r17}; st.global.u32 [%l0+72], %r18; st.global.u32 [%l0+76], %l1;
})");
  ASSERT_NE(module, nullptr);
  constexpr std::uint32_t kThreads = 5 * 3 * 3 * 2 * 2 * 2;
  const auto out = device.Allocate(kThreads * 80);
  const Launch launch = {
      .grid = {2, 2, 2}, .block = {5, 3, 3}, .dynamic_shared_bytes = 48, .sm_count = 3, .grid_id = 9};
  const auto done = TryLaunch(device, *module, "test", launch, Arguments(out));
  ASSERT_TRUE(done.has_value()) << done.error().message;
  const auto rows = device.Download<std::array<std::uint32_t, 20>>(out, kThreads);
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    const std::uint32_t thread = i % 45, block = i / 45, lane = thread % 32;
    const std::array<std::uint32_t, 20> expected = {thread % 5,
                                                    thread / 5 % 3,
                                                    thread / 15,
                                                    5,
                                                    3,
                                                    3,
                                                    block % 2,
                                                    block / 2 % 2,
                                                    block / 4,
                                                    2,
                                                    2,
                                                    2,
                                                    lane,
                                                    thread / 32,
                                                    block % 3,
                                                    3,
                                                    (1u << lane) - 1,
                                                    ~0u << lane,
                                                    48,
                                                    9};
    EXPECT_EQ(rows[i], expected) << i;
  }
}

}  // namespace
}  // namespace tessera::soft::ptx::testing
