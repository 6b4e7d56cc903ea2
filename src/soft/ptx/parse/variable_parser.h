#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "soft/ptx/parse/tokens.h"
#include "soft/ptx/program.h"
#include "soft/ptx/ptx.h"
#include "soft/ptx/syntax/scope.h"
#include "soft/ptx/syntax/type.h"

namespace tessera::soft::ptx {

// The words before the names of a .param, .reg, .global …
struct Declaration {
  Type type = Type::kNone;
  std::uint64_t element_bytes = 0;
  std::uint64_t alignment = 0;
  bool managed = false;
};

// One of the names, and the words behind it.
struct Declarator {
  std::string_view name;
  std::uint64_t elements = 1;
  bool unsized = false;         // []
  std::uint32_t registers = 0;  // name<registers>
  std::uint64_t Bytes(const Declaration& declaration) const { return declaration.element_bytes * elements; }
};

// Reads the declarations of variables (.reg, .local, .param, .shared, .global and .const) with their initial values,
// and declares them in the current scope. Functions return false after an error, which `tokens` has.
class VariableParser {
 public:
  // All of them outlive the parser. Variables in global and constant memory are appended to `variables`.
  VariableParser(Tokens& tokens, Program& program, Scopes& scopes, std::vector<Variable>& variables)
      : tokens_(tokens), program_(program), scopes_(scopes), variables_(variables) {}

  // The rest of a statement that begins with `space`: global, const, shared, reg, local or param.
  bool Parse(std::string_view space, bool external);
  bool ParseDeclaration(Declaration& declaration);
  bool ParseDeclarator(const Declaration& declaration, Declarator& declarator);

  // 32-bit registers that were declared since BeginFunction.
  void BeginFunction() { register_words_ = 0; }
  std::uint32_t RegisterWords() const { return register_words_; }

 private:
  bool Declare(std::string_view space, bool external, const Declaration& declaration, const Declarator& declarator);
  bool DeclareRegisters(const Declaration& declaration, const Declarator& declarator);
  bool DeclareShared(bool external, const Declaration& declaration, const Declarator& declarator);
  bool ParseInitialiser(const Declaration& declaration, VariableImage& image, std::uint64_t& elements);
  bool ParseElement(const Declaration& declaration, VariableImage& image, std::uint64_t offset);
  bool ParseAddressElement(VariableImage& image, std::uint64_t offset, std::uint64_t bytes, std::uint8_t shift);

  Tokens& tokens_;
  Program& program_;
  Scopes& scopes_;
  std::vector<Variable>& variables_;
  std::uint32_t register_words_ = 0;
};

}  // namespace tessera::soft::ptx
