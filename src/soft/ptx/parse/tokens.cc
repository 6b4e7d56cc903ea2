#include "soft/ptx/parse/tokens.h"

#include <limits>
#include <utility>

namespace tessera::soft::ptx {

bool Tokens::Accept(char symbol) {
  if (!token_.Is(symbol)) return false;
  Advance();
  return true;
}

bool Tokens::Accept(std::string_view directive) {
  if (token_.kind != Token::kDirective || token_.text != directive) return false;
  Advance();
  return true;
}

bool Tokens::Expect(char symbol) {
  if (Accept(symbol)) return true;
  return Failed(std::string("'") + symbol + "' is missing");
}

bool Tokens::ExpectName(std::string_view& name) {
  if (token_.kind != Token::kName) return Failed("a name is missing");
  name = token_.text;
  Advance();
  return true;
}

bool Tokens::ExpectInteger(std::uint64_t& value, std::uint64_t most) {
  if (token_.kind != Token::kInteger || token_.bits > most) {
    return Failed("a number of at most " + std::to_string(most) + " is missing");
  }
  value = token_.bits;
  Advance();
  return true;
}

bool Tokens::SkipTo(char symbol) {
  while (!token_.Is(symbol)) {
    if (token_.kind == Token::kEnd) return Expect(symbol);
    Advance();
  }
  Advance();
  return true;
}

bool Tokens::Failed(std::string message) {
  if (token_.kind == Token::kBad) message = token_.text;
  if (token_.kind == Token::kEnd) message += ", the text ends too early";
  if (!error_) error_ = Error{EINVAL, "line " + std::to_string(token_.line) + ": " + std::move(message)};
  return false;
}

bool Tokens::Unsupported(const std::string& what) {
  if (token_.kind == Token::kBad) return Failed({});
  if (!error_) {
    error_ = Error{ENOTSUP, "line " + std::to_string(token_.line) + ": " + what + " is not supported by the soft GPU"};
  }
  return false;
}

bool Tokens::Take(Result<void> result) {
  if (!result && !error_) error_ = result.error();
  return result.has_value();
}

bool Tokens::ExpectOffset(std::int64_t& offset) {
  bool negative = false;
  if (Accept('+')) {
    negative = Accept('-');
  } else if (Accept('-')) {
    negative = true;
  } else {
    return true;
  }
  std::uint64_t value = 0;
  if (!ExpectInteger(value, std::numeric_limits<std::int64_t>::max())) return false;
  offset = negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
  return true;
}

bool Tokens::SkipLocation() {
  const int line = token_.line;
  while (token_.line == line && token_.kind != Token::kEnd && token_.kind != Token::kBad) Advance();
  return true;
}

}  // namespace tessera::soft::ptx
