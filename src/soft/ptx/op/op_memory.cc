// ld, st and what only helps a cache (PTX ISA 9.7.9).
#include <atomic>
#include <bit>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/select.h"
#include "soft/ptx/run/lanes.h"
#include "soft/ptx/run/memory.h"

namespace tessera::soft::ptx {
namespace {

// The part of the quantum, in instructions, that a load in a waiting loop costs, so that the others get on.
constexpr std::uint32_t kVolatileCharge = 64;

// Every access is atomic and ordered as acquire or release, which costs little and is what the strongest forms
// of ld and st (short of a fence) promise.
template <typename T>
T LoadFrom(const std::byte* place) {
  return __atomic_load_n(reinterpret_cast<const T*>(place), __ATOMIC_ACQUIRE);
}
template <typename T>
void StoreTo(std::byte* place, T value) {
  __atomic_store_n(reinterpret_cast<T*>(place), value, __ATOMIC_RELEASE);
}

// The elements of a vector are operands 0 … count - 1, the base of the address is operand 4.
template <Space space, typename T>
void Load(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* base = warp.Source(in.operand[4]);
  if (in.target != 0) warp.Charge(static_cast<std::int64_t>(in.target) * std::popcount(lanes));
  if (in.count == 1) {
    Slot* d = warp.Destination(in.operand[0]);
    ForLanes(lanes, [&](unsigned lane) {
      const std::uint64_t address = base[lane] + static_cast<std::uint64_t>(in.immediate);
      if (const auto* place = At<space>(warp, in, lane, address, sizeof(T), Access::kRead)) {
        d[lane] = Put<T>(LoadFrom<T>(place));
      }
    });
    return;
  }
  ForLanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = base[lane] + static_cast<std::uint64_t>(in.immediate);
    const auto* place = At<space>(warp, in, lane, address, sizeof(T) * in.count, Access::kRead);
    if (place == nullptr) return;
    for (unsigned i = 0; i < in.count; ++i) {
      warp.Destination(in.operand[i])[lane] = Put<T>(LoadFrom<T>(place + i * sizeof(T)));
    }
  });
}

template <Space space, typename T>
void Store(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* base = warp.Source(in.operand[4]);
  ForLanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = base[lane] + static_cast<std::uint64_t>(in.immediate);
    auto* place = At<space>(warp, in, lane, address, sizeof(T) * in.count, Access::kWrite);
    if (place == nullptr) return;
    for (unsigned i = 0; i < in.count; ++i) {
      StoreTo<T>(place + i * sizeof(T), Get<T>(warp.Source(in.operand[i])[lane]));
    }
  });
}

template <Space space>
Instruction::Handler LoadHandler(Type type) {
  switch (type) {
    case Type::kS8:
      return &Load<space, std::int8_t>;
    case Type::kS16:
      return &Load<space, std::int16_t>;
    case Type::kS32:
      return &Load<space, std::int32_t>;
    default:
      break;
  }
  switch (BytesOf(type)) {
    case 1:
      return &Load<space, std::uint8_t>;
    case 2:
      return &Load<space, std::uint16_t>;
    case 4:
      return &Load<space, std::uint32_t>;
    case 8:
      return &Load<space, std::uint64_t>;
    default:
      return nullptr;
  }
}

template <Space space>
Instruction::Handler StoreHandler(Type type) {
  switch (space == Space::kParam ? 0 : BytesOf(type)) {  // a kernel's parameters are not written
    case 1:
      return &Store<space, std::uint8_t>;
    case 2:
      return &Store<space, std::uint16_t>;
    case 4:
      return &Store<space, std::uint32_t>;
    case 8:
      return &Store<space, std::uint64_t>;
    default:
      return nullptr;
  }
}

// Whether the access is one that a waiting loop would make. What caches should do with it is of no interest.
bool TakeOrder(Decoder& d) {
  bool waits = false;
  for (std::string_view order : {"volatile", "relaxed", "acquire", "mmio"}) waits |= d.modifiers().Take(order);
  d.modifiers().Ignore({{"weak", "release", "cta", "cluster", "gpu", "sys", "unified"}});
  d.modifiers().Ignore({{"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"}});
  d.modifiers().Ignore(
      {{"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"}});
  d.modifiers().Ignore({{"L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B"}});
  return waits;
}

unsigned TakeVector(Decoder& d) { return d.modifiers().Take("v2") ? 2 : d.modifiers().Take("v4") ? 4 : 1; }

// {a, b} or a.
void ReadElements(Decoder& d, const OperandSyntax& syntax, unsigned count, bool load, Type type, Operand* operands) {
  if (count == 1) {
    operands[0] = load ? d.operands().Destination(syntax) : d.operands().Source(syntax, type);
    return;
  }
  if (syntax.elements.size() != count) return d.Wrong("a vector of another size than the instruction's");
  for (unsigned i = 0; i < count; ++i) {
    operands[i] = load ? d.operands().Destination(syntax.elements[i]) : d.operands().Source(syntax.elements[i], type);
  }
}

template <bool load>
void DecodeAccess(Decoder& d) {
  const bool waits = TakeOrder(d);
  const unsigned count = TakeVector(d);
  const Space space = d.TakeSpace();
  const Type type = d.modifiers().TakeType();
  d.operands().ExpectCount(2);
  Operand operands[5] = {};
  ReadElements(d, d.operands().Syntax(load ? 0 : 1), count, load, type, operands);
  const Place place = d.operands().Address(d.operands().Syntax(load ? 1 : 0), space);
  operands[4] = place.base;
  const auto handler = SelectSpace(
      place.space, [type]<Space space>() { return load ? LoadHandler<space>(type) : StoreHandler<space>(type); });
  if (handler == nullptr) return d.Refuse();
  Instruction& in = d.Emit(handler);
  std::copy(operands, operands + 5, in.operand);
  in.immediate = place.offset;
  in.count = static_cast<std::uint8_t>(count);
  in.target = load && waits ? kVolatileCharge : 0;
  in.range = d.program().ranges++;
}

// prefetch, and the like: nothing to do, whatever it says.
void DecodeHint(Decoder& d) {
  for (std::string_view modifier : d.statement().modifiers) d.modifiers().Take(modifier);
}

// Acquires and releases leave one order open: a store before a load.
void Fence(Warp&, const Instruction&, LaneMask) { std::atomic_thread_fence(std::memory_order_seq_cst); }

void DecodeFence(Decoder& d) {
  d.modifiers().Ignore({{"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys", "gl"}});
  d.operands().ExpectCount(0);
  d.Emit(&Fence);
}

}  // namespace

OpcodeTable MemoryOpcodes() {
  static constexpr Opcode kTable[] = {
      {"ld", Family::kAny, &DecodeAccess<true>},  {"ldu", Family::kAny, &DecodeAccess<true>},
      {"st", Family::kAny, &DecodeAccess<false>}, {"prefetch", Family::kAny, &DecodeHint},
      {"prefetchu", Family::kAny, &DecodeHint},   {"applypriority", Family::kAny, &DecodeHint},
      {"discard", Family::kAny, &DecodeHint},     {"fence", Family::kAny, &DecodeFence},
      {"membar", Family::kAny, &DecodeFence},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
