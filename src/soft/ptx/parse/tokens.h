// The words of a module's text one after the other, and the first error that was found in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "soft/ptx/syntax/lexer.h"

namespace tessera::soft::ptx {

// The parsers' view of the text: the current token, and ways to go on. Functions that return bool record an error where
// they return false; Accept does not. The first error counts. Not thread-safe.
class Tokens {
 public:
  // `text` outlives the object and all names that were read from it.
  explicit Tokens(std::string_view text) : lexer_(text) { Advance(); }

  const Token& Current() const { return token_; }
  void Advance() { token_ = lexer_.Next(); }

  // Takes the current token if it is this one.
  bool Accept(char symbol);
  bool Accept(std::string_view directive);

  bool Expect(char symbol);
  bool ExpectName(std::string_view& name);
  bool ExpectInteger(std::uint64_t& value, std::uint64_t most);
  // +4, -4 or +-4, or nothing.
  bool ExpectOffset(std::int64_t& offset);
  bool SkipTo(char symbol);  // and past it
  // .file 1 "name", 2, 3 and .loc 1 2 3, function_name name+4, inlined_at 1 2 3 end with nothing but the line.
  bool SkipLocation();

  // Always false, so that callers can return them.
  bool Failed(std::string message);           // the text is wrong
  bool Unsupported(const std::string& what);  // the soft GPU lacks it
  // Records the error of `result`, if it is one.
  bool Take(Result<void> result);

  const std::optional<Error>& FirstError() const { return error_; }

 private:
  Lexer lexer_;
  Token token_;
  std::optional<Error> error_;
};

}  // namespace tessera::soft::ptx
