#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::soft::ptx {

struct Token {
  enum Kind {
    kEnd,
    kName,       // ld, %r1, $L__BB0_2, _
    kDirective,  // .global, .u32, .shared::cta; text is without the first dot
    kInteger,    // bits: two's complement
    kFloat,      // 0f3F800000; bits: binary32
    kDouble,     // 0d…, 1.5e3; bits: binary64
    kString,     // text is without the quotes
    kSymbol,     // one character of punctuation
    kBad,        // text says what is wrong
  };
  Kind kind = kEnd;
  std::string_view text;
  std::uint64_t bits = 0;
  int line = 1;

  bool Is(char symbol) const { return kind == kSymbol && text[0] == symbol; }
};

// Cuts PTX into tokens. Tokens point into the text, which must outlive them.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token Next();

 private:
  void SkipBlank();
  Token Name(Token token);
  Token Directive(Token token);
  Token Number(Token token);
  Token String(Token token);
  std::string_view TakeWhile(bool (*wanted)(char));
  char Peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace tessera::soft::ptx
