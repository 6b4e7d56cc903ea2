// Reads the text of a module and builds its program.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "soft/ptx/parse/statement_parser.h"
#include "soft/ptx/parse/tokens.h"
#include "soft/ptx/parse/variable_parser.h"
#include "soft/ptx/program.h"
#include "soft/ptx/ptx.h"
#include "soft/ptx/syntax/scope.h"

namespace tessera::soft::ptx {

// Reads a module: its functions, with their parameters, and its variables. Functions return false after an error, which
// `tokens_` has.
class Parser {
 public:
  // All of them outlive the parser, which appends to them.
  Parser(std::string_view text, Program& program, std::vector<Variable>& variables, std::vector<Kernel>& kernels)
      : tokens_(text),
        program_(program),
        kernels_(kernels),
        variable_parser_(tokens_, program, scopes_, variables),
        statement_parser_(tokens_, program, scopes_, variable_parser_) {}

  // The first error, with its line.
  Result<void> Parse();

 private:
  bool ParseModule();
  bool ParseTopLevel();
  bool ParseFunction(bool kernel);
  bool ParseParameters(std::vector<Declarator>& names, std::vector<Parameter>& parameters);
  bool ParseParameter(std::vector<Declarator>& names, std::vector<Parameter>& parameters);
  bool ParseTuning(std::uint32_t& max_threads);
  bool ParseBody(std::uint32_t function, const std::vector<Declarator>& results,
                 const std::vector<Parameter>& result_places, const std::vector<Declarator>& names,
                 const std::vector<Parameter>& places);
  bool DeclareFrame(const std::vector<Declarator>& names, const std::vector<Parameter>& places,
                    std::vector<FrameSlot>& slots);

  Tokens tokens_;
  Program& program_;
  std::vector<Kernel>& kernels_;
  Scopes scopes_;
  VariableParser variable_parser_;
  StatementParser statement_parser_;
};

}  // namespace tessera::soft::ptx
