// Integer arithmetic (PTX ISA 9.7.1) and arithmetic with carry (9.7.2). All of it wraps, so it is done unsigned.
#include <limits>
#include <type_traits>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/select.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

// Twice as wide, with the same sign.
template <typename T>
struct WideOf;
template <>
struct WideOf<std::uint16_t> : std::type_identity<std::uint32_t> {};
template <>
struct WideOf<std::int16_t> : std::type_identity<std::int32_t> {};
template <>
struct WideOf<std::uint32_t> : std::type_identity<std::uint64_t> {};
template <>
struct WideOf<std::int32_t> : std::type_identity<std::int64_t> {};
template <>
struct WideOf<std::uint64_t> : std::type_identity<unsigned __int128> {};
template <>
struct WideOf<std::int64_t> : std::type_identity<__int128> {};
template <typename T>
using Wide = typename WideOf<T>::type;

// Of the unsigned type, and wide enough that C++ does not promote it to a signed one.
template <typename T>
std::uint64_t Raw(T value) {
  return static_cast<std::uint64_t>(value);
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Raw(a) + Raw(b));
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Raw(a) - Raw(b));
  }
};
struct AddSaturating {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    std::int32_t sum;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return a < 0 ? std::numeric_limits<std::int32_t>::min() : std::numeric_limits<std::int32_t>::max();
  }
};
struct SubSaturating {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    std::int32_t difference;
    if (!__builtin_sub_overflow(a, b, &difference)) return difference;
    return a < 0 ? std::numeric_limits<std::int32_t>::min() : std::numeric_limits<std::int32_t>::max();
  }
};
struct MulLow {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Raw(a) * Raw(b));
  }
};
struct MulHigh {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>((Wide<T>{a} * Wide<T>{b}) >> (8 * sizeof(T)));
  }
};
template <typename Multiply>
struct MulAdd {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add{}(Multiply{}(a, b), c);
  }
};
// Division by zero has no defined result; this one is what GPUs give.
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub{}(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    return Sub{}(T{0}, a);
  }
};
struct Abs {
  template <typename T>
  T operator()(T a) const {
    return a < T{0} ? Neg{}(a) : a;
  }
};
struct SumOfDifference {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add{}(c, a < b ? Sub{}(b, a) : Sub{}(a, b));
  }
};

template <typename T>
void MulWide(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  ForLanes(lanes, [=](unsigned lane) {
    d[lane] = Put<Wide<T>>(static_cast<Wide<T>>(Wide<T>{Get<T>(a[lane])} * Wide<T>{Get<T>(b[lane])}));
  });
}

template <typename T>
void MadWide(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  ForLanes(lanes, [=](unsigned lane) {
    const Slot product = Put<Wide<T>>(static_cast<Wide<T>>(Wide<T>{Get<T>(a[lane])} * Wide<T>{Get<T>(b[lane])}));
    d[lane] = product + c[lane];
  });
}

// d = a ± b ± carry, where a may be half of a product. The carry of subtractions is a borrow.
enum CarryKind { kAdd, kSub, kMadLow, kMadHigh };
constexpr std::int64_t kCarryIn = 1, kCarryOut = 2;

template <typename T, CarryKind kind>
void Carry(Warp& warp, const Instruction& in, LaneMask lanes) {
  using U = std::make_unsigned_t<T>;
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  ForLanes(lanes, [&](unsigned lane) {
    U x = Get<U>(a[lane]), y = Get<U>(b[lane]);
    if constexpr (kind == kMadLow || kind == kMadHigh) {
      x = static_cast<U>(kind == kMadLow ? MulLow{}(Get<T>(a[lane]), Get<T>(b[lane]))
                                         : MulHigh{}(Get<T>(a[lane]), Get<T>(b[lane])));
      y = Get<U>(c[lane]);
    }
    const U carried = in.immediate & kCarryIn ? warp.carry >> lane & 1 : 0;
    U partial, result;
    const bool first = kind == kSub ? __builtin_sub_overflow(x, y, &partial) : __builtin_add_overflow(x, y, &partial);
    const bool second = kind == kSub ? __builtin_sub_overflow(partial, carried, &result)
                                     : __builtin_add_overflow(partial, carried, &result);
    const bool over = first || second;
    d[lane] = result;
    if (in.immediate & kCarryOut) warp.carry = (warp.carry & ~(1u << lane)) | LaneMask{over} << lane;
  });
}

template <CarryKind kind>
void DecodeCarry(Decoder& d, bool carry_in, bool carry_out) {
  const Type type = d.modifiers().TakeType();
  Instruction::Handler handler = SelectInteger(type, []<typename T>() -> Instruction::Handler {
    if constexpr (sizeof(T) == 2)
      return nullptr;
    else
      return &Carry<T, kind>;
  });
  Instruction& in = d.EmitSimple(handler, type, kind == kMadLow || kind == kMadHigh ? 3 : 2);
  in.immediate = (carry_in ? kCarryIn : 0) | (carry_out ? kCarryOut : 0);
}

template <typename Operation>
void DecodeBinary(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectInteger(type, []<typename T>() { return &Binary<T, Operation>; }), type, 2);
}

template <typename Operation>
void DecodeUnary(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  if (!IsSigned(type)) d.Refuse();
  d.EmitSimple(SelectInteger(type, []<typename T>() { return &Unary<T, Operation>; }), type, 1);
}

template <typename Operation, typename Saturating, CarryKind kind>
void DecodeSum(Decoder& d) {
  if (d.modifiers().Take("cc")) return DecodeCarry<kind>(d, false, true);
  if (!d.modifiers().Take("sat")) return DecodeBinary<Operation>(d);
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(type == Type::kS32 ? &Binary<std::int32_t, Saturating> : nullptr, type, 2);
}

template <CarryKind kind>
void DecodeSumWithCarry(Decoder& d) {
  const bool out = d.modifiers().Take("cc");
  DecodeCarry<kind>(d, true, out);
}

void DecodeMul(Decoder& d) {
  if (d.modifiers().Take("hi")) return DecodeBinary<MulHigh>(d);
  if (!d.modifiers().Take("wide")) {
    if (!d.modifiers().Take("lo")) d.Refuse();
    return DecodeBinary<MulLow>(d);
  }
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectInteger(type,
                             []<typename T>() -> Instruction::Handler {
                               if constexpr (sizeof(T) == 8)
                                 return nullptr;
                               else
                                 return &MulWide<T>;
                             }),
               type, 2);
}

void DecodeMad(Decoder& d) {
  const bool high = d.modifiers().Take("hi");
  if (d.modifiers().Take("cc")) {
    if (!high) d.modifiers().Take("lo");
    return high ? DecodeCarry<kMadHigh>(d, false, true) : DecodeCarry<kMadLow>(d, false, true);
  }
  if (d.modifiers().Take("wide")) {
    const Type type = d.modifiers().TakeType();
    d.EmitSimple(SelectInteger(type,
                               []<typename T>() -> Instruction::Handler {
                                 if constexpr (sizeof(T) == 8)
                                   return nullptr;
                                 else
                                   return &MadWide<T>;
                               }),
                 type, 3);
    return;
  }
  if (!high && !d.modifiers().Take("lo")) d.Refuse();
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(high ? SelectInteger(type, []<typename T>() { return &Ternary<T, MulAdd<MulHigh>>; })
                    : SelectInteger(type, []<typename T>() { return &Ternary<T, MulAdd<MulLow>>; }),
               type, 3);
}

void DecodeMadWithCarry(Decoder& d) {
  const bool out = d.modifiers().Take("cc");
  if (d.modifiers().Take("hi")) return DecodeCarry<kMadHigh>(d, true, out);
  if (!d.modifiers().Take("lo")) d.Refuse();
  DecodeCarry<kMadLow>(d, true, out);
}

void DecodeSad(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectInteger(type, []<typename T>() { return &Ternary<T, SumOfDifference>; }), type, 3);
}

}  // namespace

OpcodeTable IntegerOpcodes() {
  static constexpr Opcode kTable[] = {
      {"add", Family::kInteger, &DecodeSum<Add, AddSaturating, kAdd>},
      {"sub", Family::kInteger, &DecodeSum<Sub, SubSaturating, kSub>},
      {"addc", Family::kInteger, &DecodeSumWithCarry<kAdd>},
      {"subc", Family::kInteger, &DecodeSumWithCarry<kSub>},
      {"mul", Family::kInteger, &DecodeMul},
      {"mad", Family::kInteger, &DecodeMad},
      {"madc", Family::kInteger, &DecodeMadWithCarry},
      {"div", Family::kInteger, &DecodeBinary<Div>},
      {"rem", Family::kInteger, &DecodeBinary<Rem>},
      {"min", Family::kInteger, &DecodeBinary<Min>},
      {"max", Family::kInteger, &DecodeBinary<Max>},
      {"abs", Family::kInteger, &DecodeUnary<Abs>},
      {"neg", Family::kInteger, &DecodeUnary<Neg>},
      {"sad", Family::kInteger, &DecodeSad},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
