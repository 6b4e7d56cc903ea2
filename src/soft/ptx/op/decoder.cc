#include "soft/ptx/op/decoder.h"

#include <algorithm>
#include <array>

namespace tessera::soft::ptx {
namespace {

Family FamilyOf(const StatementSyntax& statement) {
  for (std::string_view modifier : statement.modifiers) {
    const Type type = ParseType(modifier);
    if (type == Type::kNone) continue;
    if (!IsFloat(type)) return Family::kInteger;
    return type == Type::kF32 || type == Type::kF64 ? Family::kFloat : Family::kHalf;
  }
  return Family::kAny;
}

const Opcode* FindOpcode(const StatementSyntax& statement) {
  static const auto* const kOpcodes = [] {
    auto* all = new std::unordered_multimap<std::string_view, const Opcode*>;
    for (OpcodeTable table :
         {IntegerOpcodes(), BitOpcodes(), FloatOpcodes(), HalfOpcodes(), ConvertOpcodes(), CompareOpcodes(),
          MoveOpcodes(), MemoryOpcodes(), AtomicOpcodes(), ControlOpcodes(), BarrierOpcodes(), WarpOpcodes()}) {
      for (const Opcode& opcode : table) all->emplace(opcode.name, &opcode);
    }
    return all;
  }();
  const Family family = FamilyOf(statement);
  const auto [begin, end] = kOpcodes->equal_range(statement.opcode);
  const auto found = std::find_if(begin, end, [family](const auto& entry) {
    return entry.second->family == Family::kAny || entry.second->family == family;
  });
  return found == end ? nullptr : found->second;
}

void WithFloatMode(Warp& warp, const Instruction& in, LaneMask lanes) {
  const std::uint32_t saved = ReadFloatMode();
  WriteFloatMode((saved & ~(kRoundMask | kFlushSubnormals)) | in.float_mode);
  in.inner(warp, in, lanes);
  WriteFloatMode(saved);
}

}  // namespace

Result<void> Decoder::Decode(const StatementSyntax& statement) {
  emitter_.Begin(statement);
  modifiers_.Begin(statement.modifiers);
  if (statement.guard.kind != OperandSyntax::kSink) emitter_.Guard(operands_.SourcePredicate(statement.guard));
  if (const Opcode* opcode = FindOpcode(statement)) {
    opcode->decode(*this);
  } else {
    Refuse();
  }
  if (!modifiers_.Empty()) Refuse();
  if (emitter_.FirstError()) return std::unexpected(*emitter_.FirstError());
  return {};
}

Result<void> Decoder::ResolveLabels() {
  for (const Fixup& fixup : fixups_) {
    const auto pc = scopes_.FindLabel(fixup.label, fixup.scope);
    if (!pc) {
      return Fail(EINVAL, "line " + std::to_string(fixup.line) + ": no label '" + std::string(fixup.label) + "'");
    }
    if (fixup.entry) {
      emitter_.program().branch_tables[fixup.index][*fixup.entry] = *pc;
    } else {
      emitter_.program().code[fixup.index].target = *pc;
    }
  }
  fixups_.clear();
  return {};
}

Space Decoder::TakeSpace() {
  constexpr std::array<std::string_view, 8> kNames = {"global", "const", "shared",       "shared::cta",
                                                      "local",  "param", "param::entry", "param::func"};
  switch (modifiers_.TakeOneOf(kNames, -1)) {
    case -1:
      return Space::kGeneric;
    case 0:
    case 1:
      return Space::kGlobal;
    case 2:
    case 3:
      return Space::kShared;
    case 4:
      return Space::kLocal;
    default:
      return scopes_.function().kernel ? Space::kParam : Space::kLocal;
  }
}

Instruction& Decoder::EmitSimple(Instruction::Handler handler, Type type, std::size_t sources,
                                 std::uint32_t float_mode) {
  operands_.ExpectCount(sources + 1);
  Operand operands[5] = {operands_.Destination(0)};
  for (std::size_t i = 1; i <= sources; ++i) operands[i] = operands_.Source(i, type);
  if (handler == nullptr) Refuse();
  Instruction& in = Emit(handler);
  std::ranges::copy(operands, in.operand);
  SetFloatMode(in, float_mode);
  return in;
}

void Decoder::SetFloatMode(Instruction& in, std::uint32_t float_mode) {
  if (float_mode == 0) return;
  in.float_mode = float_mode;
  in.inner = in.handler;
  in.handler = &WithFloatMode;
}

void Decoder::BranchTo(std::string_view label) {
  fixups_.push_back({label, scopes_.current(), emitter_.program().code.size() - 1, {}, emitter_.statement().line});
}

std::uint32_t Decoder::AddBranchTable(std::span<const std::string_view> labels, int line) {
  const std::size_t table = emitter_.program().branch_tables.size();
  emitter_.program().branch_tables.emplace_back(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    fixups_.push_back({labels[i], scopes_.current(), table, i, line});
  }
  return static_cast<std::uint32_t>(table);
}

}  // namespace tessera::soft::ptx
