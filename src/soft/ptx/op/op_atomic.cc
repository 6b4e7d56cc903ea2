// atom and red (PTX ISA 9.7.13).
#include <algorithm>
#include <array>
#include <bit>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/half.h"
#include "soft/ptx/op/select.h"
#include "soft/ptx/run/lanes.h"
#include "soft/ptx/run/memory.h"

namespace tessera::soft::ptx {
namespace {

// The part of the quantum, in instructions, that a try to take a lock costs.
constexpr std::uint32_t kLockCharge = 16;

struct Add {
  template <typename T>
  T operator()(T old, T b, T) const {
    if constexpr (std::is_floating_point_v<T>)
      return old + b;
    else
      return static_cast<T>(static_cast<std::uint64_t>(old) + static_cast<std::uint64_t>(b));
  }
};
struct Min {
  template <typename T>
  T operator()(T old, T b, T) const {
    return std::min(old, b);
  }
};
struct Max {
  template <typename T>
  T operator()(T old, T b, T) const {
    return std::max(old, b);
  }
};
struct And {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old & b;
  }
};
struct Or {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old | b;
  }
};
struct Xor {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old ^ b;
  }
};
struct Exchange {
  template <typename T>
  T operator()(T, T b, T) const {
    return b;
  }
};
struct CompareAndSwap {
  template <typename T>
  T operator()(T old, T b, T c) const {
    return old == b ? c : old;
  }
};
struct Increment {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old >= b ? 0 : old + 1;
  }
};
struct Decrement {
  template <typename T>
  T operator()(T old, T b, T) const {
    return old == 0 || old > b ? b : old - 1;
  }
};
// One or two 16-bit numbers in a word.
template <typename Format>
struct AddSmall {
  template <typename T>
  T operator()(T old, T b, T) const {
    T result = 0;
    for (unsigned shift = 0; shift < 8 * sizeof(T); shift += 16) {
      const double sum = Format::ToDouble(static_cast<std::uint16_t>(old >> shift)) +
                         Format::ToDouble(static_cast<std::uint16_t>(b >> shift));
      result |= static_cast<T>(T{Format::FromDouble(sum)} << shift);
    }
    return result;
  }
};

template <typename T>
using WordOf =
    std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

// operand[0] = *address, *address = Operation(*address, operand[1], operand[2]); the address is operand[4]. Other
// threads of the host may be at the same word.
template <Space space, typename T, typename Operation>
void Atomic(Warp& warp, const Instruction& in, LaneMask lanes) {
  using Word = WordOf<T>;
  const Slot* base = warp.Source(in.operand[4]);
  const Slot* b = warp.Source(in.operand[1]);
  const Slot* c = warp.Source(in.operand[2]);
  Slot* d = warp.Destination(in.operand[0]);
  if (in.target != 0) warp.Charge(static_cast<std::int64_t>(in.target) * std::popcount(lanes));
  ForLanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = base[lane] + static_cast<std::uint64_t>(in.immediate);
    auto* place = reinterpret_cast<Word*>(At<space>(warp, in, lane, address, sizeof(T), Access::kWrite));
    if (place == nullptr) return;
    Word old = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    Word next;
    do {
      next = std::bit_cast<Word>(Operation{}(std::bit_cast<T>(old), Get<T>(b[lane]), Get<T>(c[lane])));
    } while (!__atomic_compare_exchange_n(place, &old, next, /*weak=*/true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    d[lane] = old;
  });
}

template <typename T, typename Operation>
Instruction::Handler InSpace(Space space) {
  switch (space) {
    case Space::kGeneric:
      return &Atomic<Space::kGeneric, T, Operation>;
    case Space::kGlobal:
      return &Atomic<Space::kGlobal, T, Operation>;
    case Space::kShared:
      return &Atomic<Space::kShared, T, Operation>;
    default:
      return nullptr;
  }
}

template <typename Operation, typename... T>
Instruction::Handler OneOf(Space space, Type wanted, const std::array<Type, sizeof...(T)>& types) {
  Instruction::Handler handler = nullptr;
  std::size_t i = 0;
  ((wanted == types[i++] ? void(handler = InSpace<T, Operation>(space)) : void()), ...);
  return handler;
}

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

constexpr std::array<std::string_view, 10> kOperations = {"add", "min",  "max", "and", "or",
                                                          "xor", "exch", "cas", "inc", "dec"};
enum Which { kAdd, kMin, kMax, kAnd, kOr, kXor, kExchange, kCas, kIncrement, kDecrement };

Instruction::Handler HandlerFor(int which, Space space, Type type) {
  using enum Type;
  switch (which) {
    case kAdd:
      if (type == kF16) return InSpace<U16, AddSmall<Half>>(space);
      if (type == kF16x2) return InSpace<U32, AddSmall<Half>>(space);
      if (type == kBF16) return InSpace<U16, AddSmall<Bfloat16>>(space);
      if (type == kBF16x2) return InSpace<U32, AddSmall<Bfloat16>>(space);
      return OneOf<Add, U32, S32, U64, S64, float, double>(space, type, {kU32, kS32, kU64, kS64, kF32, kF64});
    case kMin:
      return OneOf<Min, U32, S32, U64, S64>(space, type, {kU32, kS32, kU64, kS64});
    case kMax:
      return OneOf<Max, U32, S32, U64, S64>(space, type, {kU32, kS32, kU64, kS64});
    case kAnd:
      return OneOf<And, U32, U64>(space, Untyped(type), {kB32, kB64});
    case kOr:
      return OneOf<Or, U32, U64>(space, Untyped(type), {kB32, kB64});
    case kXor:
      return OneOf<Xor, U32, U64>(space, Untyped(type), {kB32, kB64});
    case kExchange:
      return OneOf<Exchange, U32, U64>(space, Untyped(type), {kB32, kB64});
    case kCas:
      return OneOf<CompareAndSwap, U16, U32, U64>(space, Untyped(type), {kB16, kB32, kB64});
    case kIncrement:
      return OneOf<Increment, U32>(space, type, {kU32});
    case kDecrement:
      return OneOf<Decrement, U32>(space, type, {kU32});
    default:
      return nullptr;
  }
}

template <bool returns>
void DecodeAtomic(Decoder& d) {
  d.modifiers().Ignore({{"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz"}});
  const Space space = d.TakeSpace();
  const int which = d.modifiers().TakeOneOf(kOperations, -1);
  const Type type = d.modifiers().TakeType();
  const std::size_t first = returns ? 1 : 0;  // the address
  d.operands().ExpectCount(first + (which == kCas ? 3 : 2));
  const Place place = d.operands().Address(d.operands().Syntax(first), space);
  const Operand b = d.operands().Source(first + 1, type);
  const Operand c = which == kCas ? d.operands().Source(first + 2, type) : b;
  const Operand result = returns ? d.operands().Destination(0) : d.operands().NewRegister();
  const auto handler = HandlerFor(which, place.space, type);
  if (handler == nullptr) return d.Refuse();
  Instruction& in = d.Emit(handler);
  in.operand[0] = result;
  in.operand[1] = b;
  in.operand[2] = c;
  in.operand[4] = place.base;
  in.immediate = place.offset;
  in.target = which == kCas || which == kExchange ? kLockCharge : 0;
  in.range = d.program().ranges++;
}

}  // namespace

OpcodeTable AtomicOpcodes() {
  static constexpr Opcode kTable[] = {
      {"atom", Family::kAny, &DecodeAtomic<true>},
      {"red", Family::kAny, &DecodeAtomic<false>},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
