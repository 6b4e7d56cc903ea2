// Reads the text of a module and builds its program.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "soft/ptx/op/decoder.h"
#include "soft/ptx/program.h"
#include "soft/ptx/ptx.h"
#include "soft/ptx/syntax/lexer.h"
#include "soft/ptx/syntax/scope.h"
#include "soft/ptx/syntax/syntax.h"

namespace tessera::soft::ptx {

// Functions return false after they have recorded an error; the first one counts.
class Parser {
 public:
  Parser(std::string_view text, Program& program, std::vector<Variable>& variables, std::vector<Kernel>& kernels)
      : lexer_(text), program_(program), variables_(variables), kernels_(kernels), decoder_(program, scopes_) {
    Advance();
  }

  Result<void> Parse();

 private:
  // One .param, .reg, .global … as declared.
  struct Declaration {
    Type type = Type::kNone;
    std::uint64_t element_bytes = 0;
    std::uint64_t alignment = 0;
    bool managed = false;
  };
  struct Declarator {
    std::string_view name;
    std::uint64_t elements = 1;
    bool unsized = false;         // []
    std::uint32_t registers = 0;  // name<registers>
    std::uint64_t Bytes(const Declaration& declaration) const { return declaration.element_bytes * elements; }
  };

  // parser.cc: the module and its functions
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
  bool Finish();
  bool CheckCalls();
  // Local memory that the function and what it calls need. `depth` counts callers.
  enum class Visit : char { kNew, kUnderWay, kDone };
  std::uint32_t StackBytes(std::uint32_t function, std::vector<Visit>& visits, std::size_t depth);

  // parse_variable.cc: variables and their initial values
  bool ParseVariables(std::string_view space, bool external);
  bool ParseDeclaration(Declaration& declaration);
  bool ParseDeclarator(const Declaration& declaration, Declarator& declarator);
  bool Declare(std::string_view space, bool external, const Declaration& declaration, const Declarator& declarator);
  bool DeclareRegisters(const Declaration& declaration, const Declarator& declarator);
  bool DeclareShared(bool external, const Declaration& declaration, const Declarator& declarator);
  bool ParseInitialiser(const Declaration& declaration, VariableImage& image, std::uint64_t& elements);
  bool ParseElement(const Declaration& declaration, VariableImage& image, std::uint64_t offset);
  bool ParseAddressElement(VariableImage& image, std::uint64_t offset, std::uint64_t bytes, std::uint8_t shift);

  // parse_statement.cc: what stands between the braces of a function
  bool ParseBlock();
  bool ParseBodyDirective();
  bool ParseLabel(std::string_view name);
  bool ParseBranchTargets(std::string_view name);
  bool ParseInstruction();
  bool ParseOperands(StatementSyntax& statement);
  bool ParseCall(StatementSyntax& statement);
  bool ParseNameList(std::vector<OperandSyntax>& names);
  bool ParseOperand(OperandSyntax& operand, bool allow_vector);
  bool ParseAddress(OperandSyntax& operand);
  bool ParseOffset(std::int64_t& offset);
  bool SkipLocation();

  // Tokens.
  void Advance() { token_ = lexer_.Next(); }
  bool Accept(char symbol);
  bool Accept(std::string_view directive);
  bool Expect(char symbol);
  bool ExpectName(std::string_view& name);
  bool ExpectInteger(std::uint64_t& value, std::uint64_t most);
  bool SkipTo(char symbol);  // and past it
  bool Failed(std::string message);
  bool Unsupported(const std::string& what);
  bool Take(Result<void> result);

  Lexer lexer_;
  Token token_;
  Program& program_;
  std::vector<Variable>& variables_;
  std::vector<Kernel>& kernels_;
  Scopes scopes_;
  Decoder decoder_;
  std::uint32_t register_words_ = 0;  // of the function that is being read
  std::optional<Error> error_;
};

}  // namespace tessera::soft::ptx
