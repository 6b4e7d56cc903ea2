#include "soft/ptx/op/operands.h"

#include <bit>

#include "soft/ptx/run/special.h"

namespace tessera::soft::ptx {

void Operands::ExpectCount(std::size_t least, std::optional<std::size_t> most) {
  if (Count() >= least && Count() <= most.value_or(least)) return;
  emitter_.Wrong("'" + std::string(emitter_.statement().text) + "' with " + std::to_string(Count()) + " operands");
}

const OperandSyntax& Operands::Syntax(std::size_t index) {
  static const OperandSyntax kMissing;
  if (index < Count()) return emitter_.statement().operands[index];
  ExpectCount(index + 1, ~std::size_t{0});
  return kMissing;
}

Operand Operands::Source(const OperandSyntax& syntax, Type type) {
  switch (syntax.kind) {
    case OperandSyntax::kInteger:
      if (type == Type::kF32 || type == Type::kF64) emitter_.Wrong("an integer where a floating-point number belongs");
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
      emitter_.Wrong("an operand that '" + std::string(emitter_.statement().text) + "' does not take");
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
    emitter_.Emit(handler).operand[0] = value;
    return value;
  }
  emitter_.Wrong("'" + std::string(syntax.name) + "' is not declared or does not belong here");
  return 0;
}

Operand Operands::Destination(const OperandSyntax& syntax) {
  if (syntax.kind == OperandSyntax::kSink) return NewRegister();
  const auto symbol = Find(syntax, Symbol::kRegister);
  return symbol ? symbol->index : 0;
}

std::optional<Symbol> Operands::Find(const OperandSyntax& syntax, Symbol::Kind kind) {
  const auto symbol = scopes_.Find(syntax.name);
  if (syntax.kind == OperandSyntax::kName && symbol && symbol->kind == kind) return symbol;
  emitter_.Wrong("'" + std::string(syntax.name) + "' is not declared or does not belong here");
  return std::nullopt;
}

Predicate Operands::SourcePredicate(const OperandSyntax& syntax) {
  if (syntax.kind == OperandSyntax::kInteger) return syntax.bits != 0 ? kTrue : kFalse;
  const auto symbol = Find(syntax, Symbol::kPredicate);
  return symbol ? 2 * symbol->index + (syntax.negated ? 1 : 0) : kFalse;
}

Predicate Operands::DestinationPredicate(const OperandSyntax& syntax) {
  if (syntax.kind == OperandSyntax::kSink) return NewPredicate();
  const auto symbol = Find(syntax, Symbol::kPredicate);
  if (symbol && !syntax.negated) return 2 * symbol->index;
  if (symbol) emitter_.Wrong("a negated predicate cannot be written");
  return NewPredicate();
}

std::uint64_t Operands::Integer(std::size_t index) {
  if (Syntax(index).kind != OperandSyntax::kInteger) emitter_.Wrong("an operand that has to be a number is none");
  return Syntax(index).bits;
}

Place Operands::Address(const OperandSyntax& syntax, Space space) {
  if (syntax.kind != OperandSyntax::kAddress) {
    emitter_.Wrong("an operand that has to be an address is none");
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
      emitter_.Wrong("'" + std::string(syntax.name) + "' is not declared or has no address");
      return {};
  }
  return {SymbolAddress(symbol, 0), syntax.offset, space};
}

Operand Operands::Constant(std::uint64_t value) {
  const auto [found, added] =
      constants_.emplace(value, static_cast<Operand>(kConstant | (emitter_.program().constants.size() / kWarpSize)));
  if (added) emitter_.program().constants.insert(emitter_.program().constants.end(), kWarpSize, value);
  return found->second;
}

Operand Operands::Relocated(Relocation relocation, std::int64_t addend) {
  relocation.at = emitter_.program().constants.size() / kWarpSize;
  relocation.addend = static_cast<std::uint64_t>(addend);
  emitter_.program().relocations.push_back(relocation);
  emitter_.program().constants.insert(emitter_.program().constants.end(), kWarpSize, 0);
  return static_cast<Operand>(kConstant | relocation.at);
}

Operand Operands::SymbolAddress(const Symbol& symbol, std::int64_t offset) {
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
      const std::uint64_t at = emitter_.program().constants.size() / kWarpSize;
      emitter_.program().kernel_shared_constants.push_back(at);
      emitter_.program().constants.insert(emitter_.program().constants.end(), kWarpSize, place);
      return static_cast<Operand>(kConstant | at);
    }
    case Symbol::kDynamicShared:
    case Symbol::kFrame: {
      const Operand value = NewRegister();
      Instruction& in = emitter_.Emit(symbol.kind == Symbol::kFrame ? &FrameAddress : &DynamicSharedAddress);
      in.operand[0] = value;
      in.immediate = static_cast<std::int64_t>(place);
      return value;
    }
    default:
      emitter_.Wrong("a name that has no address");
      return 0;
  }
}

}  // namespace tessera::soft::ptx
