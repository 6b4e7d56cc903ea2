// Integer instructions against C++.
#include <algorithm>
#include <bit>

#include "soft/ptx/testing.h"

namespace tessera::soft::ptx::testing {
namespace {

using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S128 = __int128;
using U128 = unsigned __int128;

template <typename T>
T As(U64 bits) {
  return static_cast<T>(bits);
}

TEST(Integer, AddAndSubtract) {
  ExpectComputes("add.u16", "h", "hh", 16, [](const Row& x) { return x[0] + x[1]; });
  ExpectComputes("add.s32", "r", "rr", 32, [](const Row& x) { return x[0] + x[1]; });
  ExpectComputes("sub.s64", "l", "ll", 64, [](const Row& x) { return x[0] - x[1]; });
  ExpectComputes("add.sat.s32", "r", "rr", 32, [](const Row& x) {
    return As<U64>(std::clamp<S64>(S64{As<S32>(x[0])} + As<S32>(x[1]), INT32_MIN, INT32_MAX));
  });
  ExpectComputes("sub.sat.s32", "r", "rr", 32, [](const Row& x) {
    return As<U64>(std::clamp<S64>(S64{As<S32>(x[0])} - As<S32>(x[1]), INT32_MIN, INT32_MAX));
  });
}

TEST(Integer, Multiply) {
  ExpectComputes("mul.lo.u16", "h", "hh", 16, [](const Row& x) { return x[0] * x[1]; });
  ExpectComputes("mul.lo.s32", "r", "rr", 32, [](const Row& x) { return x[0] * x[1]; });
  ExpectComputes("mul.lo.s64", "l", "ll", 64, [](const Row& x) { return x[0] * x[1]; });
  ExpectComputes("mul.hi.s32", "r", "rr", 32,
                 [](const Row& x) { return As<U64>(S64{As<S32>(x[0])} * As<S32>(x[1]) >> 32); });
  ExpectComputes("mul.hi.u32", "r", "rr", 32, [](const Row& x) { return U64{As<U32>(x[0])} * As<U32>(x[1]) >> 32; });
  ExpectComputes("mul.hi.u64", "l", "ll", 64, [](const Row& x) { return As<U64>(U128{x[0]} * x[1] >> 64); });
  ExpectComputes("mul.hi.s64", "l", "ll", 64,
                 [](const Row& x) { return As<U64>(static_cast<U64>(S128{As<S64>(x[0])} * As<S64>(x[1]) >> 64)); });
  ExpectComputes("mul.wide.s32", "l", "rr", 64,
                 [](const Row& x) { return As<U64>(S64{As<S32>(x[0])} * As<S32>(x[1])); });
  ExpectComputes("mul.wide.u32", "l", "rr", 64, [](const Row& x) { return U64{As<U32>(x[0])} * As<U32>(x[1]); });
  ExpectComputes("mul.wide.s16", "r", "hh", 32, [](const Row& x) { return As<U64>(As<S16>(x[0]) * As<S16>(x[1])); });
  ExpectComputes("mad.lo.s32", "r", "rrr", 32, [](const Row& x) { return x[0] * x[1] + x[2]; });
  ExpectComputes("mad.hi.u32", "r", "rrr", 32,
                 [](const Row& x) { return (U64{As<U32>(x[0])} * As<U32>(x[1]) >> 32) + x[2]; });
  ExpectComputes("mad.wide.s32", "l", "rrl", 64,
                 [](const Row& x) { return As<U64>(S64{As<S32>(x[0])} * As<S32>(x[1])) + x[2]; });
}

TEST(Integer, Divide) {
  ExpectComputes("div.u32", "r", "rr", 32,
                 [](const Row& x) { return As<U32>(x[1]) == 0 ? ~0ull : As<U32>(x[0]) / As<U32>(x[1]); });
  ExpectComputes("rem.u64", "l", "ll", 64, [](const Row& x) { return x[1] == 0 ? x[0] : x[0] % x[1]; });
  ExpectComputes("div.s32", "r", "rr", 32,
                 [](const Row& x) { return As<S32>(x[1]) == 0 ? ~0ull : As<U64>(S64{As<S32>(x[0])} / As<S32>(x[1])); });
  ExpectComputes("rem.s16", "h", "hh", 16,
                 [](const Row& x) { return As<S16>(x[1]) == 0 ? x[0] : As<U64>(As<S16>(x[0]) % As<S16>(x[1])); });
  ExpectComputes("div.s64", "l", "ll", 64, [](const Row& x) {
    return x[1] == 0 ? ~0ull : static_cast<U64>(S128{As<S64>(x[0])} / As<S64>(x[1]));
  });
}

TEST(Integer, SignsAndExtremes) {
  ExpectComputes("neg.s32", "r", "r", 32, [](const Row& x) { return 0 - x[0]; });
  ExpectComputes("abs.s32", "r", "r", 32, [](const Row& x) { return As<S32>(x[0]) < 0 ? 0 - x[0] : x[0]; });
  ExpectComputes("abs.s64", "l", "l", 64, [](const Row& x) { return As<S64>(x[0]) < 0 ? 0 - x[0] : x[0]; });
  ExpectComputes("min.s32", "r", "rr", 32,
                 [](const Row& x) { return As<U64>(std::min(As<S32>(x[0]), As<S32>(x[1]))); });
  ExpectComputes("max.u16", "h", "hh", 16, [](const Row& x) { return U64{std::max(As<U16>(x[0]), As<U16>(x[1]))}; });
  ExpectComputes("max.s64", "l", "ll", 64,
                 [](const Row& x) { return As<U64>(std::max(As<S64>(x[0]), As<S64>(x[1]))); });
  ExpectComputes("sad.s32", "r", "rrr", 32,
                 [](const Row& x) { return As<U64>(std::abs(S64{As<S32>(x[0])} - As<S32>(x[1]))) + x[2]; });
}

TEST(Integer, CarryChains) {
  const auto rows = ManyRows();
  const auto sums = Compute(R"(
    ld.global.v2.u32 {%r3, %r4}, [%l0]; ld.global.v2.u32 {%r5, %r6}, [%l0+8];
    add.cc.u32 %r3, %r3, %r5; addc.u32 %r4, %r4, %r6; st.global.v2.u32 [%l1], {%r3, %r4};
    ld.global.u64 %l3, [%l0]; ld.global.u64 %l4, [%l0+8]; ld.global.u64 %l5, [%l0+16]; ld.global.u64 %l6, [%l0+24];
    sub.cc.u64 %l7, %l3, %l4; subc.cc.s64 %l8, %l5, %l6; subc.u64 %l9, 0, 0;
    st.global.u64 [%l1+8], %l7; st.global.u64 [%l1+16], %l8; st.global.u64 [%l1+24], %l9;
    mad.lo.cc.u64 %l7, %l3, %l4, %l5; madc.hi.u64 %l8, %l3, %l4, %l6;
    st.global.u64 [%l1+32], %l7; st.global.u64 [%l1+40], %l8;)",
                            rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& x = rows[i];
    EXPECT_EQ(sums[i][0], x[0] + x[1]);
    const U128 first = U128{x[2]} << 64 | x[0], second = U128{x[3]} << 64 | x[1];
    EXPECT_EQ(sums[i][1], As<U64>(first - second));
    EXPECT_EQ(sums[i][2], As<U64>((first - second) >> 64));
    EXPECT_EQ(sums[i][3], first < second ? ~0ull : 0);
    const U128 product = U128{x[0]} * x[1] + (U128{x[3]} << 64 | x[2]);
    EXPECT_EQ(sums[i][4], As<U64>(product));
    EXPECT_EQ(sums[i][5], As<U64>(product >> 64));
  }
}

TEST(Integer, Logic) {
  ExpectComputes("and.b32", "r", "rr", 32, [](const Row& x) { return x[0] & x[1]; });
  ExpectComputes("or.b64", "l", "ll", 64, [](const Row& x) { return x[0] | x[1]; });
  ExpectComputes("xor.b16", "h", "hh", 16, [](const Row& x) { return x[0] ^ x[1]; });
  ExpectComputes("not.b32", "r", "r", 32, [](const Row& x) { return ~x[0]; });
  ExpectComputes("cnot.b32", "r", "r", 32, [](const Row& x) { return U64{As<U32>(x[0]) == 0}; });
}

TEST(Integer, AnyFunctionOfThreeBits) {
  const auto rows = ManyRows();
  for (const unsigned table : {0x00u, 0xffu, 0x80u, 0x96u, 0xe8u, 0x1bu, 0xcau}) {
    const auto results = Compute(
        "ld.global.u32 %r3, [%l0]; ld.global.u32 %r4, [%l0+8]; ld.global.u32 %r5, [%l0+16];"
        "lop3.b32 %r6, %r3, %r4, %r5, " +
            std::to_string(table) +
            ";"
            "st.global.u32 [%l1], %r6;",
        rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      U32 expected = 0;
      for (unsigned bit = 0; bit < 32; ++bit) {
        const unsigned row = (rows[i][0] >> bit & 1) << 2 | (rows[i][1] >> bit & 1) << 1 | (rows[i][2] >> bit & 1);
        expected |= (table >> row & 1) << bit;
      }
      ASSERT_EQ(results[i][0], expected) << table;
    }
  }
}

TEST(Integer, Shift) {
  ExpectComputes("shl.b32", "r", "rr", 32, [](const Row& x) { return As<U32>(x[1]) < 32 ? x[0] << As<U32>(x[1]) : 0; });
  ExpectComputes("shl.b16", "h", "hr", 16, [](const Row& x) { return As<U32>(x[1]) < 16 ? x[0] << As<U32>(x[1]) : 0; });
  ExpectComputes("shr.u32", "r", "rr", 32,
                 [](const Row& x) { return As<U32>(x[1]) < 32 ? U64{As<U32>(x[0])} >> As<U32>(x[1]) : 0; });
  ExpectComputes("shr.s64", "l", "lr", 64,
                 [](const Row& x) { return As<U64>(As<S64>(x[0]) >> std::min(As<U32>(x[1]), 63u)); });
  ExpectComputes("shr.s16", "h", "hr", 16,
                 [](const Row& x) { return As<U64>(As<S16>(x[0]) >> std::min(As<U32>(x[1]), 15u)); });
  const auto both = [](const Row& x) { return x[1] << 32 | As<U32>(x[0]); };
  ExpectComputes("shf.l.wrap.b32", "r", "rrr", 32, [=](const Row& x) { return both(x) << (x[2] & 31) >> 32; });
  ExpectComputes("shf.r.wrap.b32", "r", "rrr", 32, [=](const Row& x) { return both(x) >> (x[2] & 31); });
  ExpectComputes("shf.l.clamp.b32", "r", "rrr", 32,
                 [=](const Row& x) { return both(x) << std::min(As<U32>(x[2]), 32u) >> 32; });
  ExpectComputes("shf.r.clamp.b32", "r", "rrr", 32,
                 [=](const Row& x) { return both(x) >> std::min(As<U32>(x[2]), 32u); });
}

// The definition of the manual, bit by bit.
template <typename T>
U64 ExtractField(U64 a, U64 b, U64 c) {
  constexpr unsigned kHighest = 8 * sizeof(T) - 1;
  const unsigned position = b & 0xff, length = c & 0xff;
  const bool sign = std::is_signed_v<T> && length > 0 && (a >> std::min(position + length - 1, kHighest) & 1);
  U64 result = 0;
  for (unsigned i = 0; i <= kHighest; ++i) {
    const bool bit = i < length && position + i <= kHighest ? a >> (position + i) & 1 : sign;
    result |= U64{bit} << i;
  }
  return result;
}

TEST(Integer, BitFields) {
  ExpectComputes("bfe.u32", "r", "rrr", 32, [](const Row& x) { return ExtractField<U32>(x[0], x[1], x[2]); });
  ExpectComputes("bfe.s32", "r", "rrr", 32, [](const Row& x) { return ExtractField<S32>(x[0], x[1], x[2]); });
  ExpectComputes("bfe.u64", "l", "lrr", 64, [](const Row& x) { return ExtractField<U64>(x[0], x[1], x[2]); });
  ExpectComputes("bfe.s64", "l", "lrr", 64, [](const Row& x) { return ExtractField<S64>(x[0], x[1], x[2]); });
  ExpectComputes("bfi.b32", "r", "rrrr", 32, [](const Row& x) {
    U64 result = x[1];
    const unsigned position = x[2] & 0xff, length = x[3] & 0xff;
    for (unsigned i = 0; i < length && position + i < 32; ++i) {
      result = (result & ~(1ull << (position + i))) | (x[0] >> i & 1) << (position + i);
    }
    return result;
  });
}

TEST(Integer, CountAndPermute) {
  ExpectComputes("popc.b64", "r", "l", 32, [](const Row& x) { return As<U64>(std::popcount(x[0])); });
  ExpectComputes("clz.b32", "r", "r", 32, [](const Row& x) { return As<U64>(std::countl_zero(As<U32>(x[0]))); });
  ExpectComputes("clz.b64", "r", "l", 32, [](const Row& x) { return As<U64>(std::countl_zero(x[0])); });
  ExpectComputes("bfind.u32", "r", "r", 32, [](const Row& x) { return As<U64>(31 - std::countl_zero(As<U32>(x[0]))); });
  ExpectComputes("bfind.s32", "r", "r", 32, [](const Row& x) {
    const U32 value = As<S32>(x[0]) < 0 ? ~As<U32>(x[0]) : As<U32>(x[0]);
    return As<U64>(31 - std::countl_zero(value));
  });
  ExpectComputes("bfind.shiftamt.u64", "r", "l", 32,
                 [](const Row& x) { return x[0] == 0 ? ~0ull : As<U64>(std::countl_zero(x[0])); });
  ExpectComputes("brev.b32", "r", "r", 32, [](const Row& x) {
    U64 result = 0;
    for (unsigned i = 0; i < 32; ++i) result |= (x[0] >> i & 1) << (31 - i);
    return result;
  });
  ExpectComputes("prmt.b32", "r", "rrr", 32, [](const Row& x) {
    U64 result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned selector = x[2] >> (4 * i) & 0xf;
      U64 byte = (selector & 4 ? x[1] : x[0]) >> (8 * (selector & 3)) & 0xff;
      if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  });
}

}  // namespace
}  // namespace tessera::soft::ptx::testing
