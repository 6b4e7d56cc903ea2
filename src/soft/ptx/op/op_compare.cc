// Comparison and selection (PTX ISA 9.7.5 and 9.7.6).
#include <array>
#include <cmath>
#include <type_traits>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/half.h"
#include "soft/ptx/op/select.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

// The comparisons in the order of kComparisons. The u forms are true if an operand is NaN as well; for integers lo, ls,
// hi and hs are the names of lt, le, gt and ge that go with unsigned types.
constexpr std::array<std::string_view, 18> kComparisons = {"eq",  "ne",  "lt",  "le",  "gt",  "ge", "equ", "neu", "ltu",
                                                           "leu", "gtu", "geu", "num", "nan", "lo", "ls",  "hi",  "hs"};
constexpr int kFirstFloatOnly = 6, kFirstUnsigned = 14, kUnordered = 6;

template <int comparison, typename T>
bool Holds(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool unordered = std::isnan(a) || std::isnan(b);
    if constexpr (comparison == 12)
      return !unordered;
    else if constexpr (comparison == 13)
      return unordered;
    else if constexpr (comparison >= kUnordered)
      return unordered || Holds<comparison - kUnordered>(a, b);
    else if (unordered)
      return false;  // ne as well
  }
  if constexpr (comparison == 0)
    return a == b;
  else if constexpr (comparison == 1)
    return a != b;
  else if constexpr (comparison == 2)
    return a < b;
  else if constexpr (comparison == 3)
    return a <= b;
  else if constexpr (comparison == 4)
    return a > b;
  else
    return a >= b;
}

enum Combination { kPlain, kAnd, kOr, kXor };
constexpr std::array<std::string_view, 3> kCombinations = {"and", "or", "xor"};

LaneMask Combined(LaneMask result, LaneMask other, std::int64_t how) {
  switch (how) {
    case kAnd:
      return result & other;
    case kOr:
      return result | other;
    case kXor:
      return result ^ other;
    default:
      return result;
  }
}

// p|q = (a op b) combined with c, and (not (a op b)) combined with c. `Format` reads 16-bit numbers.
template <int comparison, typename T, typename Format = void>
void SetPredicate(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  LaneMask result = 0;
  ForLanes(lanes, [&](unsigned lane) {
    bool holds;
    if constexpr (std::is_void_v<Format>) {
      holds = Holds<comparison>(Get<T>(a[lane]), Get<T>(b[lane]));
    } else {
      holds = Holds<comparison>(Format::ToDouble(Get<T>(a[lane])), Format::ToDouble(Get<T>(b[lane])));
    }
    result |= LaneMask{holds} << lane;
  });
  const LaneMask other = warp.Test(in.predicate[2]);
  warp.Set(in.predicate[0], lanes, Combined(result, other, in.immediate));
  warp.Set(in.predicate[1], lanes, Combined(~result, other, in.immediate));
}

template <int comparison>
Instruction::Handler HandlerFor(Type type) {
  if (type == Type::kF16) return &SetPredicate<comparison, std::uint16_t, Half>;
  if (type == Type::kBF16) return &SetPredicate<comparison, std::uint16_t, Bfloat16>;
  if (IsFloat(type)) return SelectFloat(type, []<typename T>() { return &SetPredicate<comparison, T>; });
  if constexpr (comparison < kFirstFloatOnly) {
    return SelectInteger(type, []<typename T>() { return &SetPredicate<comparison, T>; });
  } else {
    return nullptr;
  }
}

template <int... comparison>
Instruction::Handler HandlerFor(int wanted, Type type, std::integer_sequence<int, comparison...>) {
  Instruction::Handler handler = nullptr;
  ((wanted == comparison ? void(handler = HandlerFor<comparison>(type)) : void()), ...);
  return handler;
}

// Reads everything of setp and set but the destination, and emits the comparison into predicates `p` and `q`.
void EmitComparison(Decoder& d, int comparison, Type type, std::uint32_t float_mode, Predicate p, Predicate q) {
  if (comparison >= kFirstUnsigned) {
    if (IsSigned(type) || IsFloat(type)) d.Refuse();
    comparison -= kFirstUnsigned - 2;
  }
  const int combination = d.modifiers().TakeOneOf(kCombinations, -1) + 1;
  d.operands().ExpectCount(combination == kPlain ? 3 : 4);
  const Operand a = d.operands().Source(1, type), b = d.operands().Source(2, type);
  const Predicate c = combination == kPlain ? kFalse : d.operands().SourcePredicate(d.operands().Syntax(3));
  const auto handler = HandlerFor(comparison, type, std::make_integer_sequence<int, kFirstUnsigned>());
  if (handler == nullptr) return d.Refuse();
  Instruction& in = d.Emit(handler);
  in.operand[1] = a;
  in.operand[2] = b;
  in.predicate[0] = p;
  in.predicate[1] = q;
  in.predicate[2] = c;
  in.immediate = combination;
  d.SetFloatMode(in, float_mode);
}

void DecodeSetPredicate(Decoder& d) {
  const std::uint32_t float_mode = d.modifiers().Take("ftz") ? kFlushSubnormals : 0;
  const int comparison = d.modifiers().TakeOneOf(kComparisons, -1);
  const Type type = d.modifiers().TakeType();
  const OperandSyntax& pair = d.operands().Syntax(0);
  const Predicate p = d.operands().DestinationPredicate(pair);
  const Predicate q =
      pair.partner.empty() ? d.operands().NewPredicate() : d.operands().DestinationPredicate(pair.partner[0]);
  EmitComparison(d, comparison, type, float_mode, p, q);
}

void Select(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const LaneMask choice = warp.Test(in.predicate[0]);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = choice >> lane & 1 ? a[lane] : b[lane]; });
}

void EmitSelect(Decoder& d, Operand result, Operand a, Operand b, Predicate choice) {
  Instruction& in = d.Emit(&Select);
  in.operand[0] = result;
  in.operand[1] = a;
  in.operand[2] = b;
  in.predicate[0] = choice;
}

// set: like setp, but into a register as all ones or 1.0.
void DecodeSet(Decoder& d) {
  const std::uint32_t float_mode = d.modifiers().Take("ftz") ? kFlushSubnormals : 0;
  const int comparison = d.modifiers().TakeOneOf(kComparisons, -1);
  const Type to = d.modifiers().TakeType(), from = d.modifiers().TakeType();
  if (BytesOf(to) != 4) d.Refuse();
  const Predicate result = d.operands().NewPredicate();
  EmitComparison(d, comparison, from, float_mode, result, d.operands().NewPredicate());
  EmitSelect(d, d.operands().Destination(0), d.operands().Constant(to == Type::kF32 ? 0x3f800000 : 0xffffffff),
             d.operands().Constant(0), result);
}

void DecodeSelect(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.operands().ExpectCount(4);
  const Operand a = d.operands().Source(1, type), b = d.operands().Source(2, type);
  EmitSelect(d, d.operands().Destination(0), a, b, d.operands().SourcePredicate(d.operands().Syntax(3)));
}

// slct: a where c is not negative, else b.
void DecodeSelectBySign(Decoder& d) {
  d.modifiers().Take("ftz");
  const Type type = d.modifiers().TakeType(), of = d.modifiers().TakeType();
  if (of != Type::kS32 && of != Type::kF32) d.Refuse();
  d.operands().ExpectCount(4);
  const Operand a = d.operands().Source(1, type), b = d.operands().Source(2, type), c = d.operands().Source(3, of);
  const Predicate choice = d.operands().NewPredicate();
  Instruction& in = d.Emit(of == Type::kS32 ? HandlerFor<5>(of) : HandlerFor<5>(Type::kF32));
  in.operand[1] = c;
  in.operand[2] = d.operands().Constant(0);
  in.predicate[0] = choice;
  in.predicate[1] = d.operands().NewPredicate();
  EmitSelect(d, d.operands().Destination(0), a, b, choice);
}

}  // namespace

OpcodeTable CompareOpcodes() {
  static constexpr Opcode kTable[] = {
      {"setp", Family::kAny, &DecodeSetPredicate},
      {"set", Family::kAny, &DecodeSet},
      {"selp", Family::kAny, &DecodeSelect},
      {"slct", Family::kAny, &DecodeSelectBySign},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
