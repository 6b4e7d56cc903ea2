// Floating-point instructions and conversions against C++.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "soft/ptx/op/half.h"
#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

float F(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }
double D(std::uint64_t bits) { return std::bit_cast<double>(bits); }

// Numbers of all sizes and signs, zeros, infinities, subnormals and a NaN, as float bits in even words and double bits
// in odd ones.
std::vector<Row> Numbers() {
  const double values[] = {0.0,    -0.0,          1.0,          -1.0,          1.5,  -2.5,     3.0,       1e-40,
                           -1e-40, 1e-310,        1e30,         -1e30,         0.1,  1 / 3.0,  255.5,     -128.49999,
                           65504,  1e10,          -2.2e9,       4294967296.0,  0.5,  INFINITY, -INFINITY, NAN,
                           7e-8,   1.00048828125, 2147483648.0, -2147483649.0, 1e19, 2.5};
  std::vector<Row> rows;
  for (const double a : values) {
    for (const double b : values) {
      const double c = rows.size() % 3 == 0 ? a : 0.75 - b;
      rows.push_back({});
      const double operands[] = {a, b, c};
      for (std::size_t i = 0; i < 3; ++i) {
        rows.back()[i] = std::bit_cast<std::uint32_t>(static_cast<float>(operands[i]));
        rows.back()[i + 3] = std::bit_cast<std::uint64_t>(operands[i]);
      }
    }
  }
  return rows;
}

template <typename T>
bool Same(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

// Runs `instruction` on the first `sources` numbers of each row and compares with `expected`.
void ExpectFloat(const std::string& instruction, std::size_t sources, float (*expected)(float, float, float)) {
  const auto rows = Numbers();
  const auto results = Compute(OneInstruction(instruction, "f", std::string(sources, 'f')), rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float wanted = expected(F(rows[i][0]), F(rows[i][1]), F(rows[i][2]));
    ASSERT_TRUE(Same(F(results[i][0]), wanted))
        << instruction << " of " << F(rows[i][0]) << ", " << F(rows[i][1]) << ", " << F(rows[i][2]) << ": "
        << F(results[i][0]) << ", not " << wanted;
  }
}

void ExpectDouble(const std::string& instruction, std::size_t sources, double (*expected)(double, double, double)) {
  auto rows = Numbers();
  for (Row& row : rows) std::copy(row.begin() + 3, row.begin() + 6, row.begin());
  const auto results = Compute(OneInstruction(instruction, "d", std::string(sources, 'd')), rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double wanted = expected(D(rows[i][0]), D(rows[i][1]), D(rows[i][2]));
    ASSERT_TRUE(Same(D(results[i][0]), wanted)) << instruction << " of " << D(rows[i][0]) << ", " << D(rows[i][1]);
  }
}

// The host's own arithmetic in another rounding mode. Operands and result go through volatile variables, so that the
// compiler does not move the operation.
template <int mode, typename Operation>
float Rounded(Operation operation, float a, float b, float c) {
  volatile float x = a, y = b, z = c;
  std::fesetround(mode);
  volatile float result = operation(x, y, z);
  std::fesetround(FE_TONEAREST);
  return result;
}

TEST(Float, Arithmetic) {
  ExpectFloat("add.f32", 2, [](float a, float b, float) { return a + b; });
  ExpectFloat("sub.rn.f32", 2, [](float a, float b, float) { return a - b; });
  ExpectFloat("mul.f32", 2, [](float a, float b, float) { return a * b; });
  ExpectFloat("div.rn.f32", 2, [](float a, float b, float) { return a / b; });
  ExpectFloat("fma.rn.f32", 3, [](float a, float b, float c) { return std::fma(a, b, c); });
  ExpectFloat("sqrt.rn.f32", 1, [](float a, float, float) { return std::sqrt(a); });
  ExpectFloat("rcp.rn.f32", 1, [](float a, float, float) { return 1 / a; });
  ExpectFloat("abs.f32", 1, [](float a, float, float) { return std::fabs(a); });
  ExpectFloat("neg.f32", 1, [](float a, float, float) { return -a; });
  ExpectFloat("copysign.f32", 2, [](float a, float b, float) { return std::copysign(b, a); });
  ExpectDouble("add.f64", 2, [](double a, double b, double) { return a + b; });
  ExpectDouble("sub.f64", 2, [](double a, double b, double) { return a - b; });
  ExpectDouble("mul.f64", 2, [](double a, double b, double) { return a * b; });
  ExpectDouble("div.rn.f64", 2, [](double a, double b, double) { return a / b; });
  ExpectDouble("fma.rn.f64", 3, [](double a, double b, double c) { return std::fma(a, b, c); });
  ExpectDouble("sqrt.rn.f64", 1, [](double a, double, double) { return std::sqrt(a); });
}

TEST(Float, RoundingModes) {
  ExpectFloat("add.rz.f32", 2, [](float a, float b, float c) {
    return Rounded<FE_TOWARDZERO>([](float x, float y, float) { return x + y; }, a, b, c);
  });
  ExpectFloat("mul.rm.f32", 2, [](float a, float b, float c) {
    return Rounded<FE_DOWNWARD>([](float x, float y, float) { return x * y; }, a, b, c);
  });
  ExpectFloat("div.rp.f32", 2, [](float a, float b, float c) {
    return Rounded<FE_UPWARD>([](float x, float y, float) { return x / y; }, a, b, c);
  });
}

TEST(Float, Saturation) {
  ExpectFloat("add.sat.f32", 2, [](float a, float b, float) { return a + b > 0 ? std::min(a + b, 1.0f) : 0.0f; });
  ExpectFloat("fma.rn.sat.f32", 3, [](float a, float b, float c) {
    const float result = std::fma(a, b, c);
    return result > 0 ? std::min(result, 1.0f) : 0.0f;
  });
}

TEST(Float, SubnormalsAreFlushedOnRequest) {
  ExpectFloat("mul.ftz.f32", 2, [](float a, float b, float) {
    const auto flush = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; };
    return flush(flush(a) * flush(b));
  });
}

TEST(Float, Extremes) {
  ExpectFloat("min.f32", 2, [](float a, float b, float) {
    if (a == b) return std::signbit(a) ? a : b;
    return std::isnan(a) ? b : std::isnan(b) ? a : std::min(a, b);
  });
  ExpectFloat("max.NaN.f32", 2, [](float a, float b, float) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
    return std::max(a, b);
  });
  ExpectDouble("max.f64", 2, [](double a, double b, double) {
    if (a == b) return std::signbit(a) ? b : a;
    return std::isnan(a) ? b : std::isnan(b) ? a : std::max(a, b);
  });
}

TEST(Float, Approximations) {
  const std::vector<Row> rows = {{std::bit_cast<std::uint32_t>(0.5f)}, {std::bit_cast<std::uint32_t>(2.0f)}};
  const auto expect = [&rows](const char* instruction, float (*expected)(float)) {
    const auto results = Compute(OneInstruction(instruction, "f", "f"), rows);
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(F(results[i][0]), expected(F(rows[i][0])), 1e-6);
  };
  expect("sin.approx.f32", [](float a) { return std::sin(a); });
  expect("cos.approx.ftz.f32", [](float a) { return std::cos(a); });
  expect("ex2.approx.ftz.f32", [](float a) { return std::exp2(a); });
  expect("lg2.approx.f32", [](float a) { return std::log2(a); });
  expect("tanh.approx.f32", [](float a) { return std::tanh(a); });
  expect("rsqrt.approx.f32", [](float a) { return 1 / std::sqrt(a); });
  expect("rcp.approx.ftz.f32", [](float a) { return 1 / a; });
  expect("sqrt.approx.f32", [](float a) { return std::sqrt(a); });
}

TEST(Float, Classes) {
  const auto rows = Numbers();
  const auto results = Compute(R"(
    ld.global.f32 %f3, [%l0];
    testp.finite.f32 %p1, %f3; selp.u32 %r3, 1, 0, %p1;
    testp.notanumber.f32 %p1, %f3; selp.u32 %r4, 2, 0, %p1; or.b32 %r3, %r3, %r4;
    testp.subnormal.f32 %p1, %f3; selp.u32 %r4, 4, 0, %p1; or.b32 %r3, %r3, %r4;
    st.global.u32 [%l1], %r3;)",
                               rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float x = F(rows[i][0]);
    EXPECT_EQ(results[i][0], std::isfinite(x) + 2u * std::isnan(x) + 4u * (std::fpclassify(x) == FP_SUBNORMAL));
  }
}

template <typename T>
std::uint64_t Clamped(double value) {
  if (std::isnan(value)) return sizeof(T) == 8 ? 1ull << 63 : 0;
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits))
    return static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    return static_cast<std::uint64_t>(std::numeric_limits<T>::min());
  }
  return static_cast<std::uint64_t>(static_cast<T>(value));
}

TEST(Convert, FloatToInteger) {
  const auto rows = Numbers();
  const auto expect = [&rows](const char* instruction, const char* result, std::uint64_t mask, auto expected) {
    const auto results = Compute(OneInstruction(instruction, result, "f"), rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(results[i][0] & mask, expected(F(rows[i][0])) & mask) << instruction << " of " << F(rows[i][0]);
    }
  };
  expect("cvt.rzi.s32.f32", "r", ~0u, [](double x) { return Clamped<std::int32_t>(std::trunc(x)); });
  expect("cvt.rni.u32.f32", "r", ~0u, [](double x) { return Clamped<std::uint32_t>(std::nearbyint(x)); });
  expect("cvt.rmi.s64.f32", "l", ~0ull, [](double x) { return Clamped<std::int64_t>(std::floor(x)); });
  expect("cvt.rpi.u64.f32", "l", ~0ull, [](double x) { return Clamped<std::uint64_t>(std::ceil(x)); });
  expect("cvt.rzi.s8.f32", "h", 0xffff, [](double x) { return Clamped<std::int8_t>(std::trunc(x)); });
  expect("cvt.rzi.u16.f32", "h", 0xffff, [](double x) { return Clamped<std::uint16_t>(std::trunc(x)); });
}

TEST(Convert, IntegerToFloat) {
  const auto rows = ManyRows();
  const auto floats = Compute(OneInstruction("cvt.rn.f32.s64", "f", "l"), rows);
  const auto down = Compute(OneInstruction("cvt.rm.f32.u32", "f", "r"), rows);
  const auto doubles = Compute(OneInstruction("cvt.rn.f64.u64", "d", "l"), rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(F(floats[i][0]), static_cast<float>(static_cast<std::int64_t>(rows[i][0])));
    EXPECT_EQ(D(doubles[i][0]), static_cast<double>(rows[i][0]));
    const auto word = static_cast<std::uint32_t>(rows[i][0]);
    float expected = static_cast<float>(word);
    if (static_cast<double>(expected) > word) expected = std::nextafter(expected, 0.0f);
    EXPECT_EQ(F(down[i][0]), expected) << word;
  }
}

TEST(Convert, BetweenIntegers) {
  ExpectComputes("cvt.s32.s8", "r", "h", 32,
                 [](const Row& x) { return static_cast<std::uint64_t>(static_cast<std::int8_t>(x[0])); });
  ExpectComputes("cvt.u64.u32", "l", "r", 64, [](const Row& x) { return x[0] & 0xffffffff; });
  ExpectComputes("cvt.s64.s32", "l", "r", 64,
                 [](const Row& x) { return static_cast<std::uint64_t>(static_cast<std::int32_t>(x[0])); });
  ExpectComputes("cvt.u16.u64", "h", "l", 16, [](const Row& x) { return x[0]; });
  ExpectComputes("cvt.sat.u8.s32", "r", "r", 32, [](const Row& x) {
    return static_cast<std::uint64_t>(std::clamp(static_cast<std::int32_t>(x[0]), 0, 255));
  });
  ExpectComputes("cvt.sat.s16.u64", "r", "l", 32, [](const Row& x) { return std::min<std::uint64_t>(x[0], 32767); });
}

TEST(Convert, BetweenFloats) {
  const auto rows = Numbers();
  const auto whole = Compute(OneInstruction("cvt.rmi.f32.f32", "f", "f"), rows);
  const auto saturated = Compute(OneInstruction("cvt.sat.f32.f32", "f", "f"), rows);
  auto doubles = rows;
  for (Row& row : doubles) row[0] = row[3];
  const auto narrow = Compute(OneInstruction("cvt.rz.f32.f64", "f", "d"), doubles);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float x = F(rows[i][0]);
    EXPECT_TRUE(Same(F(whole[i][0]), std::floor(x))) << x;
    EXPECT_EQ(F(saturated[i][0]), x > 0 ? std::min(x, 1.0f) : 0) << x;
    float cut = static_cast<float>(D(doubles[i][0]));
    if (std::fabs(cut) > std::fabs(D(doubles[i][0]))) cut = std::nextafter(cut, 0.0f);
    EXPECT_TRUE(Same(F(narrow[i][0]), cut)) << D(doubles[i][0]);
  }
}

// All 65536 numbers of a 16-bit format survive the way to f32 and back.
TEST(Convert, SmallFormatsThereAndBack) {
  std::vector<Row> rows(45 * 1457);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i][0] = i & 0xffff;
  for (const std::string format : {"f16", "bf16"}) {
    const auto results = Compute(Replaced(R"(
      ld.global.u16 %h3, [%l0];
      cvt.f32.FORMAT %f3, %h3; cvt.rn.FORMAT.f32 %h4, %f3;
      st.global.u16 [%l1], %h4; st.global.f32 [%l1+8], %f3;)",
                                          "FORMAT", format),
                                 rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const float value = F(results[i][1]);
      if (std::isnan(value)) continue;
      ASSERT_EQ(results[i][0], rows[i][0]) << format;
      const bool bfloat = format == "bf16";
      ASSERT_TRUE(!bfloat || std::bit_cast<std::uint32_t>(value) == rows[i][0] << 16) << value;
    }
  }
}

TEST(Convert, RoundingToHalf) {
  EXPECT_EQ(Half::ToDouble(0x3c00), 1.0);
  EXPECT_EQ(Half::ToDouble(0x0001), 0x1p-24);
  EXPECT_EQ(Half::FromDouble(1 + 0x1p-11), 0x3c00);  // a tie goes to the even one
  EXPECT_EQ(Half::FromDouble(1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(Half::FromDouble(1 + 0x1p-11 + 0x1p-30), 0x3c01);
  EXPECT_EQ(Half::FromDouble(65519.0), 0x7bff);
  EXPECT_EQ(Half::FromDouble(65520.0), 0x7c00);
  EXPECT_EQ(Half::FromDouble(65520.0, /*truncate=*/true), 0x7bff);
  EXPECT_EQ(Half::FromDouble(0x1p-25), 0);
  EXPECT_EQ(Half::FromDouble(-0x1.8p-25), 0x8001);
  EXPECT_EQ(Half::FromDouble(0x1p-14 - 0x1p-26), 0x0400);  // a subnormal that rounds to the first normal number
  EXPECT_EQ(Half::FromDouble(NAN), 0x7fff);
  EXPECT_EQ(Bfloat16::FromDouble(1 + 0x1p-8), 0x3f80);
  EXPECT_EQ(Bfloat16::FromDouble(-3.0e38), 0xff62);
}

TEST(HalfArithmetic, OneAndTwoAtATime) {
  // {1.5, -2}, {0.25, 3}, {0.5, 0.5}
  const std::vector<Row> rows = {{0xc0003e00, 0x42003400, 0x38003800}};
  const auto compute = [&rows](const char* instruction, const char* result, const char* sources) {
    return Compute(OneInstruction(instruction, result, sources), rows)[0][0];
  };
  EXPECT_EQ(compute("add.f16", "h", "hh"), 0x3f00u);
  EXPECT_EQ(compute("mul.rn.f16", "h", "hh"), 0x3600u);
  EXPECT_EQ(compute("sub.f16x2", "r", "rr"), 0xc5003d00u);
  EXPECT_EQ(compute("fma.rn.f16x2", "r", "rrr"), 0xc5803b00u);
  EXPECT_EQ(compute("fma.rn.relu.f16x2", "r", "rrr"), 0x00003b00u);
  EXPECT_EQ(compute("max.f16x2", "r", "rr"), 0x42003e00u);
  EXPECT_EQ(compute("neg.f16x2", "r", "r"), 0x4000be00u);
  EXPECT_EQ(compute("abs.f16", "h", "h"), 0x3e00u);
  EXPECT_EQ(Compute("cvt.rn.f16x2.f32 %r3, 0f3F800000, 0fC0000000; st.global.b32 [%l1], %r3;", rows)[0][0],
            0x3c00c000u);
  EXPECT_EQ(Compute("cvt.rn.bf16x2.f32 %r3, 0f3F800000, 0fC0000000; st.global.b32 [%l1], %r3;", rows)[0][0],
            0x3f80c000u);
}

}  // namespace
}  // namespace tessera::soft::ptx::testing
