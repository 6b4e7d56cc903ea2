// From one instruction of the text to the decoded form.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "soft/ptx/op/emitter.h"
#include "soft/ptx/op/modifiers.h"
#include "soft/ptx/op/operands.h"
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

// Decodes the statements of a module one after the other.
class Decoder {
 public:
  Decoder(Program& program, Scopes& scopes) : scopes_(scopes), emitter_(program) {}

  // Appends the statement's instructions to Program::code.
  Result<void> Decode(const StatementSyntax& statement);
  // Fills in the branch targets of a function when all of it has been read.
  Result<void> ResolveLabels();

  // Below: for the op files. They read first and emit then; after an error all goes on with harmless values.

  const StatementSyntax& statement() const { return emitter_.statement(); }
  Program& program() { return emitter_.program(); }
  Scopes& scopes() { return scopes_; }
  Modifiers& modifiers() { return modifiers_; }
  Operands& operands() { return operands_; }

  Space TakeSpace();  // .global .shared …; generic if there is none

  Instruction& Emit(Instruction::Handler handler) { return emitter_.Emit(handler); }
  // d = handler(operands 1 … count); the bits of the float mode, if any, are set meanwhile.
  Instruction& EmitSimple(Instruction::Handler handler, Type type, std::size_t sources, std::uint32_t float_mode = 0);
  static void SetFloatMode(Instruction& in, std::uint32_t float_mode);
  void BranchTo(std::string_view label);  // the instruction emitted last goes there
  // Appends a branch to each of these labels to Program::branch_tables. They are of the current scope.
  std::uint32_t AddBranchTable(std::span<const std::string_view> labels, int line);

  void Refuse() { emitter_.Refuse(); }
  void Wrong(std::string message) { emitter_.Wrong(std::move(message)); }

 private:
  struct Fixup {
    std::string_view label;
    std::size_t scope;
    std::size_t index;  // of the instruction, or of the branch table
    std::optional<std::size_t> entry;
    int line;
  };

  Scopes& scopes_;
  Emitter emitter_;
  Modifiers modifiers_{emitter_};
  Operands operands_{emitter_, scopes_};
  std::vector<Fixup> fixups_;
};

}  // namespace tessera::soft::ptx
