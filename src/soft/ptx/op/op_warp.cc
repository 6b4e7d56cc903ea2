// Exchanges between the lanes of a warp: shfl, vote, match, redux (PTX ISA 9.7.9 and 9.7.13).
#include <algorithm>
#include <array>
#include <bit>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/select.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

// Calls body(group) for the lanes of each member mask (operand 4), once all lanes that the masks name are here. Lanes
// may have different masks: tiles of a warp run the same instruction at the same time.
template <typename Body>
void ForGroups(Warp& warp, const Instruction& in, LaneMask lanes, Body&& body) {
  LaneMask required = 0;
  const Slot* mask = warp.Source(in.operand[4]);
  ForLanes(lanes, [&](unsigned lane) { required |= Get<LaneMask>(mask[lane]); });
  if (!warp.Converged(lanes, required)) return;
  while (lanes != 0) {
    const LaneMask first = lanes & -lanes;
    const LaneMask group = first | (lanes & Get<LaneMask>(mask[std::countr_zero(first)]));
    body(group);
    lanes &= ~group;
  }
}

enum ShuffleMode { kUp, kDown, kButterfly, kIndex };
constexpr std::array<std::string_view, 4> kShuffleModes = {"up", "down", "bfly", "idx"};

void ShuffleGroup(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  std::array<Slot, kWarpSize> values;  // the destination may be the source
  std::copy(a, a + kWarpSize, values.begin());
  Slot* d = warp.Destination(in.operand[0]);
  LaneMask in_range = 0;
  ForLanes(lanes, [&](unsigned lane) {
    // The segment mask and the clamp, as the manual's pseudocode has them.
    const unsigned offset = b[lane] & 31, clamp = c[lane] & 31, segments = c[lane] >> 8 & 31;
    const unsigned highest = (lane & segments) | (clamp & ~segments), lowest = lane & segments;
    unsigned from = lane;
    bool valid = false;
    switch (in.immediate) {
      case kUp:
        from = lane - offset;
        valid = static_cast<int>(from) >= static_cast<int>(highest);
        break;
      case kDown:
        from = lane + offset;
        valid = from <= highest;
        break;
      case kButterfly:
        from = lane ^ offset;
        valid = from <= highest;
        break;
      default:
        from = lowest | (offset & ~segments);
        valid = from <= highest;
    }
    d[lane] = values[valid ? from & 31 : lane];
    in_range |= LaneMask{valid} << lane;
  });
  warp.Set(in.predicate[0], lanes, in_range);
}

void Shuffle(Warp& warp, const Instruction& in, LaneMask lanes) {
  ForGroups(warp, in, lanes, [&](LaneMask group) { ShuffleGroup(warp, in, group); });
}

void DecodeShuffle(Decoder& d) {
  const int mode = d.modifiers().TakeOneOf(kShuffleModes, -1);
  if (!d.modifiers().Take("sync") || mode < 0 || d.modifiers().TakeType() != Type::kB32) return d.Refuse();
  d.operands().ExpectCount(5);
  Operand operands[5];
  for (std::size_t i = 1; i < 5; ++i) operands[i] = d.operands().Source(i, Type::kB32);
  const OperandSyntax& pair = d.operands().Syntax(0);
  operands[0] = d.operands().Destination(pair);
  const Predicate in_range =
      pair.partner.empty() ? d.operands().NewPredicate() : d.operands().DestinationPredicate(pair.partner[0]);
  Instruction& in = d.Emit(&Shuffle);
  std::ranges::copy(operands, in.operand);
  in.predicate[0] = in_range;
  in.immediate = mode;
}

enum VoteMode { kAll, kAny, kUniform, kBallot };
constexpr std::array<std::string_view, 4> kVoteModes = {"all", "any", "uni", "ballot"};

void Vote(Warp& warp, const Instruction& in, LaneMask lanes) {
  const LaneMask all_votes = warp.Test(in.predicate[1]);  // the result may go to the same predicate
  ForGroups(warp, in, lanes, [&](LaneMask group) {
    const LaneMask votes = all_votes & group;
    if (in.immediate == kBallot) {
      Slot* d = warp.Destination(in.operand[0]);
      return ForLanes(group, [=](unsigned lane) { d[lane] = votes; });
    }
    const bool all = votes == group, any = votes != 0;
    const bool result = in.immediate == kAll ? all : in.immediate == kAny ? any : all || !any;
    warp.Set(in.predicate[0], group, result ? kAllLanes : 0);
  });
}

void DecodeVote(Decoder& d) {
  const int mode = d.modifiers().TakeOneOf(kVoteModes, -1);
  const Type type = d.modifiers().TakeType();
  if (!d.modifiers().Take("sync") || mode < 0 || type != (mode == kBallot ? Type::kB32 : Type::kPred))
    return d.Refuse();
  d.operands().ExpectCount(3);
  const Predicate vote = d.operands().SourcePredicate(d.operands().Syntax(1));
  const Operand mask = d.operands().Source(2, Type::kB32);
  const Operand ballot = mode == kBallot ? d.operands().Destination(0) : 0;
  const Predicate result =
      mode == kBallot ? d.operands().NewPredicate() : d.operands().DestinationPredicate(d.operands().Syntax(0));
  Instruction& in = d.Emit(&Vote);
  in.operand[0] = ballot;
  in.operand[4] = mask;
  in.predicate[0] = result;
  in.predicate[1] = vote;
  in.immediate = mode;
}

void ActiveMask(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = lanes; });
}

void DecodeActiveMask(Decoder& d) {
  if (d.modifiers().TakeType() != Type::kB32) d.Refuse();
  d.operands().ExpectCount(1);
  const Operand result = d.operands().Destination(0);
  d.Emit(&ActiveMask).operand[0] = result;
}

// match.any: which lanes have my value. match.all: all of them if they agree, else none.
template <typename T, bool all>
void Match(Warp& warp, const Instruction& in, LaneMask lanes) {
  ForGroups(warp, in, lanes, [&](LaneMask group) {
    const Slot* a = warp.Source(in.operand[1]);
    std::array<LaneMask, kWarpSize> same = {};
    ForLanes(group, [&](unsigned lane) {
      ForLanes(group, [&](unsigned other) { same[lane] |= LaneMask{Get<T>(a[lane]) == Get<T>(a[other])} << other; });
    });
    Slot* d = warp.Destination(in.operand[0]);
    LaneMask agreed = 0;
    ForLanes(group, [&](unsigned lane) {
      const bool agrees = same[lane] == group;
      d[lane] = all && !agrees ? 0 : same[lane];
      agreed |= LaneMask{agrees} << lane;
    });
    warp.Set(in.predicate[0], group, agreed);
  });
}

void DecodeMatch(Decoder& d) {
  const bool all = d.modifiers().Take("all");
  if (!all && !d.modifiers().Take("any")) d.Refuse();
  const Type type = d.modifiers().TakeType();
  const bool wide = type == Type::kB64;
  if (!d.modifiers().Take("sync") || (!wide && type != Type::kB32)) return d.Refuse();
  d.operands().ExpectCount(3);
  const OperandSyntax& pair = d.operands().Syntax(0);
  const Operand a = d.operands().Source(1, type), mask = d.operands().Source(2, Type::kB32);
  const Operand result = d.operands().Destination(pair);
  const Predicate agreed =
      pair.partner.empty() ? d.operands().NewPredicate() : d.operands().DestinationPredicate(pair.partner[0]);
  Instruction& in = d.Emit(wide ? (all ? &Match<std::uint64_t, true> : &Match<std::uint64_t, false>)
                                : (all ? &Match<std::uint32_t, true> : &Match<std::uint32_t, false>));
  in.operand[0] = result;
  in.operand[1] = a;
  in.operand[4] = mask;
  in.predicate[0] = agreed;
}

enum ReduceMode { kAdd, kMin, kMax, kAnd, kOr, kXor };
constexpr std::array<std::string_view, 6> kReduceModes = {"add", "min", "max", "and", "or", "xor"};

template <typename T>
T Combine(T a, T b, std::int64_t mode) {
  switch (mode) {
    case kAdd:
      return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
    case kMin:
      return std::min(a, b);
    case kMax:
      return std::max(a, b);
    case kAnd:
      return a & b;
    case kOr:
      return a | b;
    default:
      return a ^ b;
  }
}

template <typename T>
void Reduce(Warp& warp, const Instruction& in, LaneMask lanes) {
  ForGroups(warp, in, lanes, [&](LaneMask group) {
    const Slot* a = warp.Source(in.operand[1]);
    T result = Get<T>(a[std::countr_zero(group)]);
    ForLanes(group & (group - 1), [&](unsigned lane) { result = Combine(result, Get<T>(a[lane]), in.immediate); });
    Slot* d = warp.Destination(in.operand[0]);
    ForLanes(group, [=](unsigned lane) { d[lane] = Put<T>(result); });
  });
}

void DecodeReduce(Decoder& d) {
  const int mode = d.modifiers().TakeOneOf(kReduceModes, -1);
  const Type type = d.modifiers().TakeType();
  if (!d.modifiers().Take("sync") || mode < 0 || !IsInteger(type) || BytesOf(type) != 4) return d.Refuse();
  d.operands().ExpectCount(3);
  const Operand a = d.operands().Source(1, type), mask = d.operands().Source(2, Type::kB32);
  const Operand result = d.operands().Destination(0);
  Instruction& in = d.Emit(IsSigned(type) ? &Reduce<std::int32_t> : &Reduce<std::uint32_t>);
  in.operand[0] = result;
  in.operand[1] = a;
  in.operand[4] = mask;
  in.immediate = mode;
}

// elect.sync d|p, mask: the lowest lane.
void Elect(Warp& warp, const Instruction& in, LaneMask lanes) {
  ForGroups(warp, in, lanes, [&](LaneMask group) {
    const auto leader = static_cast<unsigned>(std::countr_zero(group));
    Slot* d = warp.Destination(in.operand[0]);
    ForLanes(group, [=](unsigned lane) { d[lane] = leader; });
    warp.Set(in.predicate[0], group, LaneMask{1} << leader);
  });
}

void DecodeElect(Decoder& d) {
  if (!d.modifiers().Take("sync")) return d.Refuse();
  d.operands().ExpectCount(2);
  const OperandSyntax& pair = d.operands().Syntax(0);
  const Operand mask = d.operands().Source(1, Type::kB32);
  const Operand leader = d.operands().Destination(pair);
  const Predicate elected =
      pair.partner.empty() ? d.operands().NewPredicate() : d.operands().DestinationPredicate(pair.partner[0]);
  Instruction& in = d.Emit(&Elect);
  in.operand[0] = leader;
  in.operand[4] = mask;
  in.predicate[0] = elected;
}

}  // namespace

OpcodeTable WarpOpcodes() {
  static constexpr Opcode kTable[] = {
      {"shfl", Family::kAny, &DecodeShuffle},          {"vote", Family::kAny, &DecodeVote},
      {"activemask", Family::kAny, &DecodeActiveMask}, {"match", Family::kAny, &DecodeMatch},
      {"redux", Family::kAny, &DecodeReduce},          {"elect", Family::kAny, &DecodeElect},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
