#pragma once

#include <string_view>
#include <vector>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/parse/tokens.h"
#include "soft/ptx/parse/variable_parser.h"
#include "soft/ptx/program.h"
#include "soft/ptx/syntax/scope.h"
#include "soft/ptx/syntax/syntax.h"

namespace tessera::soft::ptx {

// Reads the text between the braces of a function and appends its instructions to the program. Functions return false
// after an error, which `tokens` has.
class StatementParser {
 public:
  // All of them outlive the parser.
  StatementParser(Tokens& tokens, Program& program, Scopes& scopes, VariableParser& variables)
      : tokens_(tokens), program_(program), scopes_(scopes), variables_(variables), decoder_(program, scopes) {}

  // From the opening brace of a function to its closing one.
  bool ParseBlock();
  // Ends the function: fills in the targets of its branches.
  bool End();

 private:
  bool ParseBodyDirective();
  bool ParseLabel(std::string_view name);
  bool ParseBranchTargets(std::string_view name);
  bool ParseInstruction();
  bool ParseOperands(StatementSyntax& statement);
  bool ParseCall(StatementSyntax& statement);
  bool ParseNameList(std::vector<OperandSyntax>& names);
  bool ParseOperand(OperandSyntax& operand, bool allow_vector);
  bool ParseAddress(OperandSyntax& operand);

  Tokens& tokens_;
  Program& program_;
  Scopes& scopes_;
  VariableParser& variables_;
  Decoder decoder_;
};

}  // namespace tessera::soft::ptx
