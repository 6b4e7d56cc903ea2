// From the operands in the text of a statement to those of instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "soft/ptx/op/emitter.h"
#include "soft/ptx/program.h"
#include "soft/ptx/syntax/scope.h"
#include "soft/ptx/syntax/syntax.h"
#include "soft/ptx/syntax/type.h"

namespace tessera::soft::ptx {

// [register + offset] or [variable + offset]; a variable says itself in which space it is.
struct Place {
  Operand base = 0;
  std::int64_t offset = 0;
  Space space = Space::kGeneric;
};

// The operands of the statement that `emitter` is at. Reading one may emit instructions that compute it. After an
// error, which `emitter` has, all go on with harmless values.
class Operands {
 public:
  // Both outlive the object.
  Operands(Emitter& emitter, Scopes& scopes) : emitter_(emitter), scopes_(scopes) {}

  std::size_t Count() const { return emitter_.statement().operands.size(); }
  // An error unless there are `least` to `most` of them; without `most`, just `least`.
  void ExpectCount(std::size_t least, std::optional<std::size_t> most = {});
  const OperandSyntax& Syntax(std::size_t index);

  Operand Source(const OperandSyntax& syntax, Type type);
  Operand Source(std::size_t index, Type type) { return Source(Syntax(index), type); }
  Operand Destination(const OperandSyntax& syntax);
  Operand Destination(std::size_t index) { return Destination(Syntax(index)); }
  Predicate SourcePredicate(const OperandSyntax& syntax);
  Predicate DestinationPredicate(const OperandSyntax& syntax);
  std::uint64_t Integer(std::size_t index);  // an operand that must be a number
  Place Address(const OperandSyntax& syntax, Space space);
  std::optional<Symbol> Find(const OperandSyntax& syntax, Symbol::Kind kind);

  Operand Constant(std::uint64_t value);
  Operand NewRegister() { return scopes_.function().registers++; }
  Predicate NewPredicate() { return 2 * scopes_.function().predicates++; }

 private:
  Operand SymbolAddress(const Symbol& symbol, std::int64_t offset);
  Operand Relocated(Relocation relocation, std::int64_t addend);

  Emitter& emitter_;
  Scopes& scopes_;
  std::unordered_map<std::uint64_t, Operand> constants_;
};

}  // namespace tessera::soft::ptx
