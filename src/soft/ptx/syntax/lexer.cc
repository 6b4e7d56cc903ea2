#include "soft/ptx/syntax/lexer.h"

#include <bit>
#include <charconv>

namespace tessera::soft::ptx {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHex(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsNameStart(char c) { return IsLetter(c) || c == '_' || c == '$' || c == '%'; }
bool IsNamePart(char c) { return IsLetter(c) || IsDigit(c) || c == '_' || c == '$'; }
// "1.5e-3" but not "1+2": a sign belongs to the number only behind its exponent, which Number looks after.
bool IsNumberPart(char c) { return IsLetter(c) || IsDigit(c) || c == '.'; }

Token Bad(Token token, std::string_view why) {
  token.kind = Token::kBad;
  token.text = why;
  return token;
}

// All of `digits` in the given base.
bool ParseInteger(std::string_view digits, int base, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return error == std::errc{} && end == digits.data() + digits.size();
}

}  // namespace

std::string_view Lexer::TakeWhile(bool (*wanted)(char)) {
  const std::size_t start = at_;
  while (at_ < text_.size() && wanted(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

void Lexer::SkipBlank() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++at_;
    } else if (c == '/' && Peek(1) == '/') {
      TakeWhile([](char other) { return other != '\n'; });
    } else if (c == '/' && Peek(1) == '*') {
      const std::size_t end = std::min(text_.find("*/", at_ + 2), text_.size() - 2) + 2;
      for (; at_ < end; ++at_) line_ += text_[at_] == '\n';
    } else {
      return;
    }
  }
}

Token Lexer::Next() {
  SkipBlank();
  Token token{.line = line_};
  if (at_ >= text_.size()) return token;
  const char c = text_[at_];
  if (IsNameStart(c)) return Name(token);
  if (c == '.' && IsNameStart(Peek(1))) return Directive(token);
  if (IsDigit(c)) return Number(token);
  if (c == '"') return String(token);
  token.kind = Token::kSymbol;
  token.text = text_.substr(at_++, 1);
  return token;
}

Token Lexer::Name(Token token) {
  const std::size_t start = at_++;  // the first character may be a %, which no later one may be
  TakeWhile(IsNamePart);
  token.kind = Token::kName;
  token.text = text_.substr(start, at_ - start);
  return token;
}

Token Lexer::Directive(Token token) {
  const std::size_t start = ++at_;
  TakeWhile(IsNamePart);
  while (Peek() == ':' && Peek(1) == ':') {
    at_ += 2;
    TakeWhile(IsNamePart);
  }
  token.kind = Token::kDirective;
  token.text = text_.substr(start, at_ - start);
  return token;
}

Token Lexer::Number(Token token) {
  const std::size_t start = at_;
  TakeWhile(IsNumberPart);
  std::string_view text = text_.substr(start, at_ - start);
  const char kind = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (kind == 'f' || kind == 'd') {
    const std::size_t digits = kind == 'f' ? 8 : 16;
    if (text.size() != digits + 2 || !ParseInteger(text.substr(2), 16, token.bits)) return Bad(token, "bad number");
    token.kind = kind == 'f' ? Token::kFloat : Token::kDouble;
    return token;
  }
  const bool hexadecimal = kind == 'x';
  if (!hexadecimal && text.find_first_of(".eE") != text.npos) {
    if ((text.back() | 0x20) == 'e' && (Peek() == '-' || Peek() == '+')) {
      ++at_;
      TakeWhile(IsHex);
      text = text_.substr(start, at_ - start);
    }
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return Bad(token, "bad number");
    token.kind = Token::kDouble;
    token.text = text;
    token.bits = std::bit_cast<std::uint64_t>(value);
    return token;
  }
  if ((text.back() | 0x20) == 'u') text.remove_suffix(1);
  int base = 10;
  if (hexadecimal || kind == 'b') {
    base = hexadecimal ? 16 : 2;
    text.remove_prefix(2);
  } else if (IsDigit(kind)) {
    base = 8;
    text.remove_prefix(1);
  }
  if (!ParseInteger(text, base, token.bits)) return Bad(token, "bad number or one of more than 64 bits");
  token.kind = Token::kInteger;
  token.text = text;
  return token;
}

Token Lexer::String(Token token) {
  const std::size_t end = text_.find('"', at_ + 1);
  if (end == text_.npos) {
    at_ = text_.size();
    return Bad(token, "string without end");
  }
  token.kind = Token::kString;
  token.text = text_.substr(at_ + 1, end - at_ - 1);
  for (char c : token.text) line_ += c == '\n';
  at_ = end + 1;
  return token;
}

}  // namespace tessera::soft::ptx
