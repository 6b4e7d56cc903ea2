#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "soft/ptx/program.h"
#include "soft/ptx/syntax/syntax.h"

namespace tessera::soft::ptx {

// Appends the instructions of one statement after the other to a program, and keeps the first error of a statement.
class Emitter {
 public:
  // `program` outlives the emitter.
  explicit Emitter(Program& program) : program_(program) {}

  // From now on all is of `statement`, which stays as it is until the next one begins.
  void Begin(const StatementSyntax& statement) {
    statement_ = &statement;
    guard_ = kTrue;
    error_.reset();
  }
  // The lanes that execute what is emitted from now on.
  void Guard(Predicate guard) { guard_ = guard; }

  const StatementSyntax& statement() const { return *statement_; }
  Program& program() { return program_; }

  // Adds an instruction with the statement's line and guard. The reference is good until the next one.
  Instruction& Emit(Instruction::Handler handler);

  void Refuse();                    // not supported
  void Wrong(std::string message);  // not PTX
  const std::optional<Error>& FirstError() const { return error_; }

 private:
  Program& program_;
  const StatementSyntax* statement_ = nullptr;
  Predicate guard_ = kTrue;
  std::optional<Error> error_;
};

}  // namespace tessera::soft::ptx
