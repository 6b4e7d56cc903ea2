// Logic, shifts and bit fields (PTX ISA 9.7.1 and 9.7.8).
#include <algorithm>
#include <array>
#include <bit>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/select.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct Not {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <typename T>
  T operator()(T a) const {
    return a == 0;
  }
};

template <typename Operation>
void PredicateLogic(Warp& warp, const Instruction& in, LaneMask lanes) {
  warp.Set(in.predicate[0], lanes, Operation{}(warp.Test(in.predicate[1]), warp.Test(in.predicate[2])));
}

template <typename Operation>
void DecodeLogic(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  if (type != Type::kPred) {
    d.EmitSimple(SelectBits(type, []<typename T>() { return &Binary<T, Operation>; }), type, 2);
    return;
  }
  d.operands().ExpectCount(3);
  const Predicate a = d.operands().SourcePredicate(d.operands().Syntax(1)),
                  b = d.operands().SourcePredicate(d.operands().Syntax(2));
  Instruction& in = d.Emit(&PredicateLogic<Operation>);
  in.predicate[0] = d.operands().DestinationPredicate(d.operands().Syntax(0));
  in.predicate[1] = a;
  in.predicate[2] = b;
}

void DecodeNot(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  if (type != Type::kPred) {
    d.EmitSimple(SelectBits(type, []<typename T>() { return &Unary<T, Not>; }), type, 1);
    return;
  }
  d.operands().ExpectCount(2);
  const Predicate a = d.operands().SourcePredicate(d.operands().Syntax(1));
  Instruction& in = d.Emit(&PredicateLogic<Xor>);
  in.predicate[0] = d.operands().DestinationPredicate(d.operands().Syntax(0));
  in.predicate[1] = a;
  in.predicate[2] = kTrue;
}

void DecodeLogicalNot(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectBits(type, []<typename T>() { return &Unary<T, LogicalNot>; }), type, 1);
}

// The amount of a shift is always 32 bits; as much as the width or more shifts everything out.
template <typename T>
void ShiftLeft(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  ForLanes(lanes, [=](unsigned lane) {
    const auto amount = Get<std::uint32_t>(b[lane]);
    d[lane] = amount < 8 * sizeof(T) ? Put(static_cast<T>(std::uint64_t{Get<T>(a[lane])} << amount)) : 0;
  });
}

template <typename T>
void ShiftRight(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  ForLanes(lanes, [=](unsigned lane) {
    const auto amount = std::min<std::uint32_t>(Get<std::uint32_t>(b[lane]), 8 * sizeof(T));
    const T value = Get<T>(a[lane]);
    // In two steps, since a shift by the whole width is not defined in C++.
    d[lane] = Put(static_cast<T>(amount == 0 ? value : static_cast<T>(value >> (amount - 1)) >> 1));
  });
}

void DecodeShiftLeft(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectBits(type, []<typename T>() { return &ShiftLeft<T>; }), Type::kB64, 2);
}

void DecodeShiftRight(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectInteger(type, []<typename T>() { return &ShiftRight<T>; }), Type::kB64, 2);
}

// The funnel shift: 32 of the 64 bits b:a.
template <bool left, bool wrap>
struct Funnel {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    const std::uint32_t amount = wrap ? c & 31 : std::min(c, 32u);
    return static_cast<std::uint32_t>(left ? both << amount >> 32 : both >> amount);
  }
};

void DecodeFunnel(Decoder& d) {
  const bool left = d.modifiers().Take("l");
  if (!left && !d.modifiers().Take("r")) d.Refuse();
  const bool wrap = d.modifiers().Take("wrap");
  if (!wrap && !d.modifiers().Take("clamp")) d.Refuse();
  if (d.modifiers().TakeType() != Type::kB32) d.Refuse();
  using U = std::uint32_t;
  d.EmitSimple(left ? (wrap ? &Ternary<U, Funnel<true, true>> : &Ternary<U, Funnel<true, false>>)
                    : (wrap ? &Ternary<U, Funnel<false, true>> : &Ternary<U, Funnel<false, false>>),
               Type::kB32, 3);
}

// Any function of three bits, given by its table of values.
void Lookup3(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  ForLanes(lanes, [&](unsigned lane) {
    Slot result = 0;
    for (unsigned row = 0; row < 8; ++row) {
      if ((in.immediate >> row & 1) == 0) continue;
      result |= (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) & (row & 1 ? c[lane] : ~c[lane]);
    }
    d[lane] = result;
  });
}

void DecodeLookup3(Decoder& d) {
  if (d.modifiers().TakeType() != Type::kB32) d.Refuse();
  d.operands().ExpectCount(5);
  const Operand a = d.operands().Source(1, Type::kB32), b = d.operands().Source(2, Type::kB32),
                c = d.operands().Source(3, Type::kB32);
  const auto table = static_cast<std::int64_t>(d.operands().Integer(4));
  Instruction& in = d.Emit(&Lookup3);
  in.operand[0] = d.operands().Destination(0);
  in.operand[1] = a;
  in.operand[2] = b;
  in.operand[3] = c;
  in.immediate = table;
}

template <typename T>
void ExtractField(Warp& warp, const Instruction& in, LaneMask lanes) {
  using U = std::make_unsigned_t<T>;
  constexpr unsigned kBits = 8 * sizeof(T);
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  ForLanes(lanes, [=](unsigned lane) {
    const unsigned position = b[lane] & 0xff, length = c[lane] & 0xff;
    const U value = Get<U>(a[lane]);
    const unsigned kept = position < kBits ? std::min(length, kBits - position) : 0;
    // Beyond the value's end the field goes on with its highest bit.
    const bool negative = std::is_signed_v<T> && length > 0 && value >> std::min(position + length - 1, kBits - 1) & 1;
    U field = kept > 0 ? static_cast<U>(value >> position) : 0;
    if (kept < kBits) {
      const U mask = static_cast<U>((U{1} << kept) - 1);
      field = negative ? field | static_cast<U>(~mask) : field & mask;
    }
    d[lane] = field;
  });
}

template <typename T>
void InsertField(Warp& warp, const Instruction& in, LaneMask lanes) {
  constexpr unsigned kBits = 8 * sizeof(T);
  Slot* f = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  const Slot* d = warp.Source(in.operand[4]);
  ForLanes(lanes, [=](unsigned lane) {
    const unsigned position = c[lane] & 0xff, length = d[lane] & 0xff;
    T mask = length < kBits ? static_cast<T>((T{1} << length) - 1) : static_cast<T>(~T{0});
    mask = position < kBits ? static_cast<T>(mask << position) : 0;
    const T inserted = position < kBits ? static_cast<T>(Get<T>(a[lane]) << position) : 0;
    f[lane] = (Get<T>(b[lane]) & ~mask) | (inserted & mask);
  });
}

template <typename T>
constexpr bool kWord = sizeof(T) >= 4;

void DecodeExtractField(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectInteger(type,
                             []<typename T>() -> Instruction::Handler {
                               if constexpr (kWord<T>)
                                 return &ExtractField<T>;
                               else
                                 return nullptr;
                             }),
               type, 3);
}

void DecodeInsertField(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectBits(type,
                          []<typename T>() -> Instruction::Handler {
                            if constexpr (kWord<T>)
                              return &InsertField<T>;
                            else
                              return nullptr;
                          }),
               type, 4);
}

// Handlers that give a 32-bit result from a wider value: U is the type of the source.
struct CountOnes {
  template <typename U>
  std::uint32_t operator()(U a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct CountLeadingZeros {
  template <typename U>
  std::uint32_t operator()(U a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct FindHighest {
  template <typename U>
  std::uint32_t operator()(U a) const {
    return a == 0 ? ~0u : 8 * sizeof(U) - 1 - CountLeadingZeros{}(a);
  }
};
struct ShiftOfHighest {
  template <typename U>
  std::uint32_t operator()(U a) const {
    return a == 0 ? ~0u : CountLeadingZeros{}(a);
  }
};

template <typename T, typename Operation>
void Count(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  ForLanes(lanes, [=](unsigned lane) {
    using U = std::make_unsigned_t<T>;
    U value = Get<U>(a[lane]);
    // Only bfind has signed types: it looks for the highest bit that is not a copy of the sign.
    if (std::is_signed_v<T> && value >> (8 * sizeof(T) - 1)) value = static_cast<U>(~value);
    d[lane] = Operation{}(value);
  });
}

template <typename Operation>
void DecodeCount(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectInteger(type,
                             []<typename T>() -> Instruction::Handler {
                               if constexpr (kWord<T>)
                                 return &Count<T, Operation>;
                               else
                                 return nullptr;
                             }),
               type, 1);
}

void DecodeFindHighest(Decoder& d) {
  return d.modifiers().Take("shiftamt") ? DecodeCount<ShiftOfHighest>(d) : DecodeCount<FindHighest>(d);
}

struct Reverse {
  template <typename T>
  T operator()(T a) const {
    T result = 0;
    for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit)
      result |= static_cast<T>((a >> bit & 1) << (8 * sizeof(T) - 1 - bit));
    return result;
  }
};

void DecodeReverse(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(SelectBits(type, []<typename T>() { return &Unary<T, Reverse>; }), type, 1);
}

// Four bytes out of the eight of b:a, each chosen by four bits of c; the highest of them copies the byte's sign.
struct Permute {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    std::uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned selector = c >> (4 * i) & 0xf;
      std::uint32_t byte = both >> (8 * (selector & 7)) & 0xff;
      if (selector & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

void DecodePermute(Decoder& d) {
  if (d.modifiers().TakeType() != Type::kB32) d.Refuse();
  d.EmitSimple(&Ternary<std::uint32_t, Permute>, Type::kB32, 3);
}

}  // namespace

OpcodeTable BitOpcodes() {
  static constexpr Opcode kTable[] = {
      {"and", Family::kInteger, &DecodeLogic<And>},
      {"or", Family::kInteger, &DecodeLogic<Or>},
      {"xor", Family::kInteger, &DecodeLogic<Xor>},
      {"not", Family::kInteger, &DecodeNot},
      {"cnot", Family::kInteger, &DecodeLogicalNot},
      {"shl", Family::kInteger, &DecodeShiftLeft},
      {"shr", Family::kInteger, &DecodeShiftRight},
      {"shf", Family::kInteger, &DecodeFunnel},
      {"lop3", Family::kInteger, &DecodeLookup3},
      {"bfe", Family::kInteger, &DecodeExtractField},
      {"bfi", Family::kInteger, &DecodeInsertField},
      {"popc", Family::kInteger, &DecodeCount<CountOnes>},
      {"clz", Family::kInteger, &DecodeCount<CountLeadingZeros>},
      {"bfind", Family::kInteger, &DecodeFindHighest},
      {"brev", Family::kInteger, &DecodeReverse},
      {"prmt", Family::kInteger, &DecodePermute},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
