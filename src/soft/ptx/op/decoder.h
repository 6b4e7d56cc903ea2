// From one instruction of the text to the decoded form.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "soft/ptx/program.h"
#include "soft/ptx/syntax/scope.h"
#include "soft/ptx/syntax/syntax.h"
#include "soft/ptx/syntax/type.h"

namespace tessera::soft::ptx {

class Decoder;

// Which rows of the opcode tables a statement means, by its first type: add.s32, add.f64 and add.f16x2 have little in
// common but the name.
enum class Family { kAny, kInteger, kFloat, kHalf };

// The instructions of one op_*.cc. `decode` reads the modifiers and operands of the statement and emits instructions;
// what it leaves unread or cannot read makes the statement unsupported.
struct Opcode {
  std::string_view name;
  Family family;
  void (*decode)(Decoder&);
};
using OpcodeTable = std::span<const Opcode>;
OpcodeTable IntegerOpcodes();
OpcodeTable BitOpcodes();
OpcodeTable FloatOpcodes();
OpcodeTable HalfOpcodes();
OpcodeTable ConvertOpcodes();
OpcodeTable CompareOpcodes();
OpcodeTable MoveOpcodes();
OpcodeTable MemoryOpcodes();
OpcodeTable AtomicOpcodes();
OpcodeTable ControlOpcodes();
OpcodeTable BarrierOpcodes();
OpcodeTable WarpOpcodes();

// Bits of the SSE control register that an instruction wants.
inline constexpr std::uint32_t kRoundMask = 0x6000, kRoundDown = 0x2000, kRoundUp = 0x4000, kRoundToZero = 0x6000;
inline constexpr std::uint32_t kFlushSubnormals = 0x8040;

class Decoder {
 public:
  Decoder(Program& program, Scopes& scopes) : program_(program), scopes_(scopes) {}

  // Appends the statement's instructions to Program::code.
  Result<void> Decode(const StatementSyntax& statement);
  // Fills in the branch targets of a function when all of it has been read.
  Result<void> ResolveLabels();

  // Below: for the op files. They read first and emit then; after an error all goes on with harmless values.

  const StatementSyntax& statement() const { return *statement_; }
  Program& program() { return program_; }
  Scopes& scopes() { return scopes_; }

  // Modifiers are taken in any order, which is more than PTX allows.
  bool Take(std::string_view modifier);
  // The first of `names` that is there, or `otherwise`.
  int TakeOneOf(std::span<const std::string_view> names, int otherwise);
  Type TakeType();  // the first that is a type, kNone (and an error) if there is none
  void Ignore(std::span<const std::string_view> modifiers);
  std::uint32_t TakeRounding();  // .rn .rz .rm .rp and .ftz as SSE control bits
  Space TakeSpace();             // .global .shared …; generic if there is none

  std::size_t operands() const { return statement_->operands.size(); }
  void ExpectOperands(std::size_t least, std::size_t most);
  void ExpectOperands(std::size_t count) { ExpectOperands(count, count); }
  const OperandSyntax& Syntax(std::size_t index);

  Operand Source(const OperandSyntax& syntax, Type type);
  Operand Source(std::size_t index, Type type) { return Source(Syntax(index), type); }
  Operand Destination(const OperandSyntax& syntax);
  Operand Destination(std::size_t index) { return Destination(Syntax(index)); }
  Predicate SourcePredicate(const OperandSyntax& syntax);
  Predicate DestinationPredicate(const OperandSyntax& syntax);
  bool IsPredicate(const OperandSyntax& syntax);
  std::uint64_t Integer(std::size_t index);  // an operand that must be a number
  // [register + offset] or [variable + offset]; a variable says itself in which space it is.
  struct Place {
    Operand base = 0;
    std::int64_t offset = 0;
    Space space = Space::kGeneric;
  };
  Place Address(const OperandSyntax& syntax, Space space);
  std::optional<Symbol> Find(const OperandSyntax& syntax, Symbol::Kind kind);

  Operand Constant(std::uint64_t value);
  Operand NewRegister() { return scopes_.function().registers++; }
  Predicate NewPredicate() { return 2 * scopes_.function().predicates++; }

  // Adds an instruction with the statement's line and guard. The reference is good until the next one.
  Instruction& Emit(Instruction::Handler handler);
  // d = handler(operands 1 … count); the SSE control bits, if any, are set meanwhile.
  Instruction& EmitSimple(Instruction::Handler handler, Type type, std::size_t sources, std::uint32_t mxcsr = 0);
  static void SetMxcsr(Instruction& in, std::uint32_t mxcsr);
  void BranchTo(std::string_view label);  // the instruction emitted last goes there
  // Appends a branch to each of these labels to Program::branch_tables. They are of the current scope.
  std::uint32_t AddBranchTable(std::span<const std::string_view> labels, int line);

  void Refuse();                    // not supported
  void Wrong(std::string message);  // not PTX

 private:
  struct Fixup {
    std::string_view label;
    std::size_t scope;
    std::size_t index;  // of the instruction, or of the branch table
    std::optional<std::size_t> entry;
    int line;
  };

  Operand SymbolAddress(const Symbol& symbol, std::int64_t offset);
  Operand Relocated(Relocation relocation, std::int64_t addend);

  Program& program_;
  Scopes& scopes_;
  const StatementSyntax* statement_ = nullptr;
  Predicate guard_ = kTrue;
  std::vector<std::string_view> modifiers_;  // not yet taken
  std::unordered_map<std::uint64_t, Operand> constants_;
  std::vector<Fixup> fixups_;
  std::optional<Error> error_;
};

}  // namespace tessera::soft::ptx
