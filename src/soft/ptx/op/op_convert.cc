// cvt (PTX ISA 9.7.9.21): every type to every other.
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/half.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

// How a floating-point number becomes an integer, or a whole number of its own type.
enum class ToWhole : std::uint8_t { kNone, kNearest, kToZero, kDown, kUp };

struct Mode {
  ToWhole whole = ToWhole::kNone;
  bool saturate = false;
  bool relu = false;
  bool truncate = false;  // .rz to a 16-bit format
};

constexpr std::int64_t Pack(Mode mode) {
  return static_cast<int>(mode.whole) | mode.saturate << 8 | mode.relu << 9 | mode.truncate << 10;
}
constexpr Mode Unpack(std::int64_t bits) {
  return {static_cast<ToWhole>(bits & 0xff), (bits >> 8 & 1) != 0, (bits >> 9 & 1) != 0, (bits >> 10 & 1) != 0};
}

template <typename T>
T Whole(T value, ToWhole how) {
  switch (how) {
    case ToWhole::kNearest:
      return std::nearbyint(value);
    case ToWhole::kToZero:
      return std::trunc(value);
    case ToWhole::kDown:
      return std::floor(value);
    case ToWhole::kUp:
      return std::ceil(value);
    default:
      return value;
  }
}

// Out of range gives the nearest end of the range, always.
template <typename To, typename From>
To FloatToInteger(From value, Mode mode) {
  const From whole = Whole(value, mode.whole == ToWhole::kNone ? ToWhole::kToZero : mode.whole);
  // A NaN is 0, but the highest bit alone in 64 bits.
  if (std::isnan(whole)) return sizeof(To) == 8 ? static_cast<To>(std::uint64_t{1} << 63) : To{0};
  // Not max() itself: that is no number of a shorter floating-point type.
  const From end = std::ldexp(From{1}, std::numeric_limits<To>::digits);
  if (whole >= end) return std::numeric_limits<To>::max();
  if (whole <= (std::is_signed_v<To> ? -end : From{0})) return std::numeric_limits<To>::min();
  return static_cast<To>(whole);
}

template <typename To, typename From>
To IntegerToInteger(From value, Mode mode) {
  if (!mode.saturate) return static_cast<To>(value);
  if (std::cmp_greater(value, std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
  if (std::cmp_less(value, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(value);
}

// The 16-bit formats as types of their own.
template <typename Format>
struct Small {
  using FormatType = Format;
};
template <typename T>
constexpr bool kIsSmall = !std::is_arithmetic_v<T>;

template <typename T>
auto Read(Slot slot) {
  if constexpr (kIsSmall<T>)
    return T::FormatType::ToDouble(static_cast<std::uint16_t>(slot));
  else
    return Get<T>(slot);
}

template <typename To, typename From>
Slot ConvertOne(Slot slot, Mode mode) {
  const auto value = Read<From>(slot);
  using Value = std::remove_const_t<decltype(value)>;
  if constexpr (std::is_integral_v<To>) {
    if constexpr (std::is_integral_v<Value>)
      return Put<To>(IntegerToInteger<To>(value, mode));
    else
      return Put<To>(FloatToInteger<To>(value, mode));
  } else {
    using Computed = std::conditional_t<kIsSmall<To>, double, To>;
    Computed result;
    if constexpr (std::is_integral_v<Value>)
      result = static_cast<Computed>(value);
    else
      result = static_cast<Computed>(Whole(value, mode.whole));
    if (mode.relu && result < 0) result = 0;
    if (mode.saturate) result = result > 0 ? (result < 1 ? result : Computed{1}) : Computed{0};
    if constexpr (kIsSmall<To>)
      return To::FormatType::FromDouble(result, mode.truncate);
    else
      return Put<To>(result);
  }
}

template <typename To, typename From>
void Convert(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Mode mode = Unpack(in.immediate);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = ConvertOne<To, From>(a[lane], mode); });
}

// cvt.f16x2.f32 d, a, b: a becomes the upper half.
template <typename To>
void ConvertPair(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Mode mode = Unpack(in.immediate);
  ForLanes(lanes, [=](unsigned lane) {
    d[lane] = ConvertOne<To, float>(a[lane], mode) << 16 | ConvertOne<To, float>(b[lane], mode);
  });
}

template <typename Make>
Instruction::Handler SelectAny(Type type, Make make) {
  switch (type) {
    case Type::kU8:
      return make.template operator()<std::uint8_t>();
    case Type::kU16:
      return make.template operator()<std::uint16_t>();
    case Type::kU32:
      return make.template operator()<std::uint32_t>();
    case Type::kU64:
      return make.template operator()<std::uint64_t>();
    case Type::kS8:
      return make.template operator()<std::int8_t>();
    case Type::kS16:
      return make.template operator()<std::int16_t>();
    case Type::kS32:
      return make.template operator()<std::int32_t>();
    case Type::kS64:
      return make.template operator()<std::int64_t>();
    case Type::kF16:
      return make.template operator()<Small<Half>>();
    case Type::kBF16:
      return make.template operator()<Small<Bfloat16>>();
    case Type::kF32:
      return make.template operator()<float>();
    case Type::kF64:
      return make.template operator()<double>();
    default:
      return nullptr;
  }
}

void DecodeConvert(Decoder& d) {
  constexpr std::array<std::string_view, 4> kWholeModes = {"rni", "rzi", "rmi", "rpi"};
  Mode mode;
  mode.whole = static_cast<ToWhole>(d.modifiers().TakeOneOf(kWholeModes, -1) + 1);
  mode.saturate = d.modifiers().Take("sat");
  mode.relu = d.modifiers().Take("relu");
  const std::uint32_t float_mode = d.modifiers().TakeRounding();
  const Type to = d.modifiers().TakeType(), from = d.modifiers().TakeType();
  const bool pair = to == Type::kF16x2 || to == Type::kBF16x2;
  if (pair || to == Type::kF16 || to == Type::kBF16) {
    // The host's rounding bits do not reach the formats that we round ourselves.
    mode.truncate = (float_mode & kRoundMask) == kRoundToZero;
    if (!mode.truncate && (float_mode & kRoundMask) != 0) d.Refuse();
  }
  Instruction::Handler handler = nullptr;
  if (pair && from == Type::kF32) {
    handler = to == Type::kF16x2 ? &ConvertPair<Small<Half>> : &ConvertPair<Small<Bfloat16>>;
  } else {
    handler = SelectAny(
        to, [from]<typename To>() { return SelectAny(from, []<typename From>() { return &Convert<To, From>; }); });
  }
  // Only .ftz is left for rounding to 16 bits, and nearbyint must see the mode that the instruction names.
  d.EmitSimple(handler, from, pair ? 2 : 1, mode.truncate ? float_mode & ~kRoundMask : float_mode).immediate =
      Pack(mode);
}

}  // namespace

OpcodeTable ConvertOpcodes() {
  static constexpr Opcode kTable[] = {{"cvt", Family::kAny, &DecodeConvert}};
  return kTable;
}

}  // namespace tessera::soft::ptx
