// mov in all its forms, and conversions between address spaces (PTX ISA 9.7.9).
#include "soft/ptx/op/decoder.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

// d = a + immediate
void Move(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot offset = static_cast<Slot>(in.immediate);
  ForLanes(lanes, [=](unsigned lane) { d[lane] = a[lane] + offset; });
}

void MovePredicate(Warp& warp, const Instruction& in, LaneMask lanes) {
  warp.Set(in.predicate[0], lanes, warp.Test(in.predicate[1]));
}

// operand[0] = operands 1 … count, the first in the lowest of `immediate` bits each.
void PackVector(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot mask = (Slot{1} << in.immediate) - 1;
  ForLanes(lanes, [&](unsigned lane) {
    Slot result = 0;
    for (unsigned i = 0; i < in.count; ++i) {
      result |= (warp.Source(in.operand[1 + i])[lane] & mask) << (i * in.immediate);
    }
    d[lane] = result;
  });
}

// Operands 1 … count = the parts of operand[0].
void UnpackVector(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* a = warp.Source(in.operand[0]);
  const Slot mask = (Slot{1} << in.immediate) - 1;
  ForLanes(lanes, [&](unsigned lane) {
    const Slot value = a[lane];
    for (unsigned i = 0; i < in.count; ++i) {
      warp.Destination(in.operand[1 + i])[lane] = value >> (i * in.immediate) & mask;
    }
  });
}

void DecodeVectorMove(Decoder& d, Type type) {
  const bool pack = d.operands().Syntax(1).kind == OperandSyntax::kVector;
  const std::vector<OperandSyntax>& elements = d.operands().Syntax(pack ? 1 : 0).elements;
  const std::size_t count = elements.size();
  if ((count != 2 && count != 4) || BytesOf(type) < count) return d.Refuse();
  Operand operands[5] = {pack ? d.operands().Destination(0) : d.operands().Source(1, type)};
  for (std::size_t i = 0; i < count; ++i) {
    operands[1 + i] = pack ? d.operands().Source(elements[i], Type::kB64) : d.operands().Destination(elements[i]);
  }
  Instruction& in = d.Emit(pack ? &PackVector : &UnpackVector);
  std::copy(operands, operands + 5, in.operand);
  in.count = static_cast<std::uint8_t>(count);
  in.immediate = 8 * BytesOf(type) / static_cast<unsigned>(count);
}

void DecodeMove(Decoder& d) {
  const Type type = d.modifiers().TakeType();
  d.operands().ExpectCount(2);
  if (type == Type::kPred) {
    const Predicate a = d.operands().SourcePredicate(d.operands().Syntax(1));
    Instruction& in = d.Emit(&MovePredicate);
    in.predicate[0] = d.operands().DestinationPredicate(d.operands().Syntax(0));
    in.predicate[1] = a;
    return;
  }
  if (d.operands().Syntax(0).kind == OperandSyntax::kVector || d.operands().Syntax(1).kind == OperandSyntax::kVector) {
    return DecodeVectorMove(d, type);
  }
  const std::size_t emitted = d.program().code.size();
  const Operand a = d.operands().Source(1, type);
  // An instruction that fetches a special register can write the destination itself.
  if (d.program().code.size() > emitted) {
    d.program().code.back().operand[0] = d.operands().Destination(0);
    return;
  }
  Instruction& in = d.Emit(&Move);
  in.operand[0] = d.operands().Destination(0);
  in.operand[1] = a;
}

// Where the space begins among the generic addresses.
std::uint64_t WindowOf(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParamWindow;
    default:
      return 0;
  }
}

void DecodeToAddress(Decoder& d) {
  const bool to = d.modifiers().Take("to");
  const Space space = d.TakeSpace();
  const Type type = d.modifiers().TakeType();
  if (BytesOf(type) != 8 || space == Space::kGeneric) d.Refuse();
  Instruction& in = d.EmitSimple(&Move, type, 1);
  in.immediate = static_cast<std::int64_t>(to ? 0 - WindowOf(space) : WindowOf(space));
}

void IsSpace(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* a = warp.Source(in.operand[1]);
  LaneMask result = 0;
  ForLanes(lanes, [&](unsigned lane) {
    result |= LaneMask{(a[lane] & kWindowMask) == static_cast<Slot>(in.immediate)} << lane;
  });
  warp.Set(in.predicate[0], lanes, result);
}

void DecodeIsSpace(Decoder& d) {
  const Space space = d.TakeSpace();
  if (space == Space::kGeneric) return d.Refuse();
  d.operands().ExpectCount(2);
  const Operand a = d.operands().Source(1, Type::kB64);
  Instruction& in = d.Emit(&IsSpace);
  in.predicate[0] = d.operands().DestinationPredicate(d.operands().Syntax(0));
  in.operand[1] = a;
  in.immediate = static_cast<std::int64_t>(WindowOf(space));
}

}  // namespace

OpcodeTable MoveOpcodes() {
  static constexpr Opcode kTable[] = {
      {"mov", Family::kAny, &DecodeMove},
      {"cvta", Family::kAny, &DecodeToAddress},
      {"isspacep", Family::kAny, &DecodeIsSpace},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
