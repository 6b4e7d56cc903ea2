#include "soft/ptx/op/decoder.h"

#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <bit>

#include "soft/ptx/run/special.h"

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

void WithMxcsr(Warp& warp, const Instruction& in, LaneMask lanes) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr((saved & ~(kRoundMask | kFlushSubnormals)) | in.mxcsr);
  in.inner(warp, in, lanes);
  _mm_setcsr(saved);
}

}  // namespace

Result<void> Decoder::Decode(const StatementSyntax& statement) {
  statement_ = &statement;
  modifiers_ = statement.modifiers;
  error_.reset();
  guard_ = kTrue;
  if (statement.guard.kind != OperandSyntax::kSink) guard_ = SourcePredicate(statement.guard);
  if (const Opcode* opcode = FindOpcode(statement)) {
    opcode->decode(*this);
  } else {
    Refuse();
  }
  if (!modifiers_.empty()) Refuse();
  if (error_) return std::unexpected(*error_);
  return {};
}

Result<void> Decoder::ResolveLabels() {
  for (const Fixup& fixup : fixups_) {
    const auto pc = scopes_.FindLabel(fixup.label, fixup.scope);
    if (!pc) {
      return Fail(EINVAL, "line " + std::to_string(fixup.line) + ": no label '" + std::string(fixup.label) + "'");
    }
    if (fixup.entry) {
      program_.branch_tables[fixup.index][*fixup.entry] = *pc;
    } else {
      program_.code[fixup.index].target = *pc;
    }
  }
  fixups_.clear();
  return {};
}

bool Decoder::Take(std::string_view modifier) {
  const auto found = std::ranges::find(modifiers_, modifier);
  if (found == modifiers_.end()) return false;
  modifiers_.erase(found);
  return true;
}

int Decoder::TakeOneOf(std::span<const std::string_view> names, int otherwise) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (Take(names[i])) return static_cast<int>(i);
  }
  return otherwise;
}

void Decoder::Ignore(std::span<const std::string_view> modifiers) {
  for (std::string_view modifier : modifiers) Take(modifier);
}

Type Decoder::TakeType() {
  for (auto i = modifiers_.begin(); i != modifiers_.end(); ++i) {
    if (const Type type = ParseType(*i); type != Type::kNone) {
      modifiers_.erase(i);
      return type;
    }
  }
  Refuse();
  return Type::kNone;
}

std::uint32_t Decoder::TakeRounding() {
  constexpr std::array<std::string_view, 4> kModes = {"rn", "rz", "rm", "rp"};
  constexpr std::array<std::uint32_t, 4> kBits = {0, kRoundToZero, kRoundDown, kRoundUp};
  const std::uint32_t bits = kBits[static_cast<std::size_t>(TakeOneOf(kModes, 0))];
  return bits | (Take("ftz") ? kFlushSubnormals : 0);
}

Space Decoder::TakeSpace() {
  constexpr std::array<std::string_view, 8> kNames = {"global", "const", "shared",       "shared::cta",
                                                      "local",  "param", "param::entry", "param::func"};
  switch (TakeOneOf(kNames, -1)) {
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

void Decoder::ExpectOperands(std::size_t least, std::size_t most) {
  if (operands() >= least && operands() <= most) return;
  Wrong("'" + std::string(statement_->text) + "' with " + std::to_string(operands()) + " operands");
}

const OperandSyntax& Decoder::Syntax(std::size_t index) {
  static const OperandSyntax kMissing;
  if (index < operands()) return statement_->operands[index];
  ExpectOperands(index + 1, ~std::size_t{0});
  return kMissing;
}

Operand Decoder::Source(const OperandSyntax& syntax, Type type) {
  switch (syntax.kind) {
    case OperandSyntax::kInteger:
      if (type == Type::kF32 || type == Type::kF64) Wrong("an integer where a floating-point number belongs");
      return Constant(syntax.bits);
    case OperandSyntax::kFloat:
      if (type != Type::kF64) return Constant(syntax.bits);
      return Constant(std::bit_cast<std::uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(syntax.bits)))));
    case OperandSyntax::kDouble:
      if (type != Type::kF32) return Constant(syntax.bits);
      return Constant(std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(syntax.bits))));
    case OperandSyntax::kName:
      break;
    default:
      Wrong("an operand that '" + std::string(statement_->text) + "' does not take");
      return 0;
  }
  if (syntax.component.empty() && !syntax.negated) {
    if (const auto symbol = scopes_.Find(syntax.name)) {
      if (symbol->kind == Symbol::kRegister && syntax.offset == 0) return symbol->index;
      if (symbol->kind != Symbol::kRegister) return SymbolAddress(*symbol, syntax.offset);
    }
    if (syntax.name == "WARP_SZ") return Constant(kWarpSize);
  }
  if (const auto handler = FindSpecial(syntax.name, syntax.component)) {
    const Operand value = NewRegister();
    Emit(handler).operand[0] = value;
    return value;
  }
  Wrong("'" + std::string(syntax.name) + "' is not declared or does not belong here");
  return 0;
}

Operand Decoder::Destination(const OperandSyntax& syntax) {
  if (syntax.kind == OperandSyntax::kSink) return NewRegister();
  const auto symbol = Find(syntax, Symbol::kRegister);
  return symbol ? symbol->index : 0;
}

std::optional<Symbol> Decoder::Find(const OperandSyntax& syntax, Symbol::Kind kind) {
  const auto symbol = scopes_.Find(syntax.name);
  if (syntax.kind == OperandSyntax::kName && symbol && symbol->kind == kind) return symbol;
  Wrong("'" + std::string(syntax.name) + "' is not declared or does not belong here");
  return std::nullopt;
}

bool Decoder::IsPredicate(const OperandSyntax& syntax) {
  const auto symbol = scopes_.Find(syntax.name);
  return syntax.kind == OperandSyntax::kName && symbol && symbol->kind == Symbol::kPredicate;
}

Predicate Decoder::SourcePredicate(const OperandSyntax& syntax) {
  if (syntax.kind == OperandSyntax::kInteger) return syntax.bits != 0 ? kTrue : kFalse;
  const auto symbol = Find(syntax, Symbol::kPredicate);
  return symbol ? 2 * symbol->index + (syntax.negated ? 1 : 0) : kFalse;
}

Predicate Decoder::DestinationPredicate(const OperandSyntax& syntax) {
  if (syntax.kind == OperandSyntax::kSink) return NewPredicate();
  const auto symbol = Find(syntax, Symbol::kPredicate);
  if (symbol && !syntax.negated) return 2 * symbol->index;
  if (symbol) Wrong("a negated predicate cannot be written");
  return NewPredicate();
}

std::uint64_t Decoder::Integer(std::size_t index) {
  if (Syntax(index).kind != OperandSyntax::kInteger) Wrong("an operand that has to be a number is none");
  return Syntax(index).bits;
}

Decoder::Place Decoder::Address(const OperandSyntax& syntax, Space space) {
  if (syntax.kind != OperandSyntax::kAddress) {
    Wrong("an operand that has to be an address is none");
    return {};
  }
  if (syntax.name.empty()) return {Constant(0), syntax.offset, space};
  const Symbol symbol = scopes_.Find(syntax.name).value_or(Symbol{.kind = Symbol::kNothing});
  switch (symbol.kind) {
    case Symbol::kRegister:
      return {symbol.index, syntax.offset, space};
    case Symbol::kGlobal:
      space = Space::kGlobal;
      break;
    case Symbol::kShared:
    case Symbol::kKernelShared:
    case Symbol::kDynamicShared:
      space = Space::kShared;
      break;
    case Symbol::kParameter:
      space = Space::kParam;
      break;
    case Symbol::kFrame:
      return {Constant(symbol.index), syntax.offset, Space::kFrame};
    default:
      Wrong("'" + std::string(syntax.name) + "' is not declared or has no address");
      return {};
  }
  return {SymbolAddress(symbol, 0), syntax.offset, space};
}

Operand Decoder::Constant(std::uint64_t value) {
  const auto [found, added] =
      constants_.emplace(value, static_cast<Operand>(kConstant | (program_.constants.size() / kWarpSize)));
  if (added) program_.constants.insert(program_.constants.end(), kWarpSize, value);
  return found->second;
}

Operand Decoder::Relocated(Relocation relocation, std::int64_t addend) {
  relocation.at = program_.constants.size() / kWarpSize;
  relocation.addend = static_cast<std::uint64_t>(addend);
  program_.relocations.push_back(relocation);
  program_.constants.insert(program_.constants.end(), kWarpSize, 0);
  return static_cast<Operand>(kConstant | relocation.at);
}

Operand Decoder::SymbolAddress(const Symbol& symbol, std::int64_t offset) {
  const std::uint64_t place = symbol.index + static_cast<std::uint64_t>(offset);
  switch (symbol.kind) {
    case Symbol::kGlobal:
      return Relocated({.variable = symbol.index}, offset);
    case Symbol::kShared:
    case Symbol::kParameter:
      return Constant(place);
    case Symbol::kFunction:
      return Constant(FunctionAddress(symbol.index));
    case Symbol::kKernelShared: {
      const std::uint64_t at = program_.constants.size() / kWarpSize;
      program_.kernel_shared_constants.push_back(at);
      program_.constants.insert(program_.constants.end(), kWarpSize, place);
      return static_cast<Operand>(kConstant | at);
    }
    case Symbol::kDynamicShared:
    case Symbol::kFrame: {
      const Operand value = NewRegister();
      Instruction& in = Emit(symbol.kind == Symbol::kFrame ? &FrameAddress : &DynamicSharedAddress);
      in.operand[0] = value;
      in.immediate = static_cast<std::int64_t>(place);
      return value;
    }
    default:
      Wrong("a name that has no address");
      return 0;
  }
}

Instruction& Decoder::Emit(Instruction::Handler handler) {
  program_.code.push_back({.handler = handler, .guard = guard_, .line = statement_->line});
  return program_.code.back();
}

Instruction& Decoder::EmitSimple(Instruction::Handler handler, Type type, std::size_t sources, std::uint32_t mxcsr) {
  ExpectOperands(sources + 1);
  Operand operands[5] = {Destination(0)};
  for (std::size_t i = 1; i <= sources; ++i) operands[i] = Source(i, type);
  if (handler == nullptr) Refuse();
  Instruction& in = Emit(handler);
  std::ranges::copy(operands, in.operand);
  SetMxcsr(in, mxcsr);
  return in;
}

void Decoder::SetMxcsr(Instruction& in, std::uint32_t mxcsr) {
  if (mxcsr == 0) return;
  in.mxcsr = mxcsr;
  in.inner = in.handler;
  in.handler = &WithMxcsr;
}

void Decoder::BranchTo(std::string_view label) {
  fixups_.push_back({label, scopes_.current(), program_.code.size() - 1, {}, statement_->line});
}

std::uint32_t Decoder::AddBranchTable(std::span<const std::string_view> labels, int line) {
  const std::size_t table = program_.branch_tables.size();
  program_.branch_tables.emplace_back(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    fixups_.push_back({labels[i], scopes_.current(), table, i, line});
  }
  return static_cast<std::uint32_t>(table);
}

void Decoder::Refuse() {
  if (error_) return;
  error_ = Error{ENOTSUP, "line " + std::to_string(statement_->line) + ": instruction '" +
                              std::string(statement_->text) + "' is not supported by the soft GPU"};
}

void Decoder::Wrong(std::string message) {
  if (error_) return;
  error_ = Error{EINVAL, "line " + std::to_string(statement_->line) + ": " + std::move(message)};
}

}  // namespace tessera::soft::ptx
