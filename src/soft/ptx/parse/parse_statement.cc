// What stands between the braces of a function.
#include <limits>

#include "soft/ptx/parse/parser.h"

namespace tessera::soft::ptx {

bool Parser::ParseBlock() {
  if (!Expect('{')) return false;
  std::size_t depth = 1;
  while (depth > 0) {
    if (Accept('{')) {
      scopes_.Push();
      ++depth;
    } else if (Accept('}')) {
      if (--depth > 0) scopes_.Pop();
    } else if (token_.kind == Token::kDirective) {
      if (!ParseBodyDirective()) return false;
    } else if (token_.kind == Token::kName || token_.Is('@')) {
      if (!ParseInstruction()) return false;
    } else if (!Accept(';')) {
      return Failed("'" + std::string(token_.text) + "' is not expected here");
    }
  }
  return true;
}

bool Parser::ParseBodyDirective() {
  if (Accept("loc")) return SkipLocation();
  if (Accept("pragma")) return SkipTo(';');
  for (std::string_view space : {"reg", "local", "param", "shared"}) {
    if (Accept(space)) return ParseVariables(space, false);
  }
  if (Accept("extern")) return Accept("shared") ? ParseVariables("shared", true) : Unsupported("'.extern' here");
  return Unsupported("'." + std::string(token_.text) + "'");
}

// .file 1 "name", 2, 3 and .loc 1 2 3, function_name name+4, inlined_at 1 2 3 end with nothing but the line.
bool Parser::SkipLocation() {
  const int line = token_.line;
  while (token_.line == line && token_.kind != Token::kEnd && token_.kind != Token::kBad) Advance();
  return true;
}

bool Parser::ParseLabel(std::string_view name) {
  if (Accept("callprototype")) return SkipTo(';');
  if (Accept("calltargets")) return SkipTo(';');
  if (Accept("branchtargets")) return ParseBranchTargets(name);
  if (scopes_.DeclareLabel(name, static_cast<std::uint32_t>(program_.code.size()))) return true;
  return Failed("the label '" + std::string(name) + "' is there already");
}

bool Parser::ParseBranchTargets(std::string_view name) {
  std::vector<std::string_view> labels;
  do {
    if (!ExpectName(labels.emplace_back())) return false;
  } while (Accept(','));
  const Symbol symbol = {.kind = Symbol::kBranchTargets, .index = decoder_.AddBranchTable(labels, token_.line)};
  if (!scopes_.Declare(name, symbol)) return Failed("'" + std::string(name) + "' is declared already");
  return Expect(';');
}

bool Parser::ParseInstruction() {
  StatementSyntax statement;
  if (Accept('@')) {
    if (!ParseOperand(statement.guard, false)) return false;
    if (statement.guard.kind != OperandSyntax::kName) return Failed("a guard has to be a predicate");
  }
  statement.line = token_.line;
  if (!ExpectName(statement.opcode)) return false;
  if (statement.guard.kind == OperandSyntax::kSink && Accept(':')) return ParseLabel(statement.opcode);
  const auto* end = statement.opcode.end();
  while (token_.kind == Token::kDirective) {
    statement.modifiers.push_back(token_.text);
    end = token_.text.end();
    Advance();
  }
  statement.text = std::string_view(statement.opcode.begin(), end);
  const bool read = statement.opcode == "call" ? ParseCall(statement) : ParseOperands(statement);
  return read && Expect(';') && Take(decoder_.Decode(statement));
}

bool Parser::ParseOperands(StatementSyntax& statement) {
  if (token_.Is(';')) return true;
  do {
    if (!ParseOperand(statement.operands.emplace_back(), true)) return false;
  } while (Accept(','));
  return true;
}

// call (results), callee, (arguments), prototype; all but the callee may be missing.
bool Parser::ParseCall(StatementSyntax& statement) {
  if (token_.Is('(') && (!ParseNameList(statement.results) || !Expect(','))) return false;
  if (!ParseOperand(statement.callee, false)) return false;
  if (statement.callee.kind != OperandSyntax::kName) return Failed("a call of something that is no function");
  if (!Accept(',')) return true;
  if (token_.Is('(')) {
    if (!ParseNameList(statement.arguments)) return false;
    if (!Accept(',')) return true;
  }
  std::string_view prototype;
  return ExpectName(prototype);
}

bool Parser::ParseNameList(std::vector<OperandSyntax>& names) {
  if (!Expect('(')) return false;
  if (Accept(')')) return true;
  do {
    if (!ParseOperand(names.emplace_back(), false)) return false;
  } while (Accept(','));
  return Expect(')');
}

bool Parser::ParseOperand(OperandSyntax& operand, bool allow_vector) {
  operand.negated = Accept('!');
  const bool minus = Accept('-');
  const Token token = token_;
  if (token.kind == Token::kBad) return Failed({});
  Advance();
  operand.bits = token.bits;
  switch (token.kind) {
    case Token::kInteger:
      operand.kind = OperandSyntax::kInteger;
      if (minus) operand.bits = 0 - operand.bits;
      return true;
    case Token::kFloat:
      operand.kind = OperandSyntax::kFloat;
      if (minus) operand.bits ^= 1u << 31;
      return true;
    case Token::kDouble:
      operand.kind = OperandSyntax::kDouble;
      if (minus) operand.bits ^= 1ull << 63;
      return true;
    case Token::kName:
      break;
    case Token::kSymbol:
      if (token.Is('[') && allow_vector) return ParseAddress(operand);
      if (token.Is('{') && allow_vector) {
        operand.kind = OperandSyntax::kVector;
        do {
          if (!ParseOperand(operand.elements.emplace_back(), false)) return false;
        } while (Accept(','));
        return Expect('}');
      }
      [[fallthrough]];
    default:
      return Failed("an operand is missing");
  }
  operand.kind = token.text == "_" ? OperandSyntax::kSink : OperandSyntax::kName;
  operand.name = token.text;
  if (token_.kind == Token::kDirective) {
    operand.component = token_.text;
    Advance();
  }
  if (!ParseOffset(operand.offset)) return false;
  if (allow_vector && Accept('|')) return ParseOperand(operand.partner.emplace_back(), false);
  return !minus || Failed("a number is missing after the '-'");
}

// The rest of [name + offset] or [offset].
bool Parser::ParseAddress(OperandSyntax& operand) {
  operand.kind = OperandSyntax::kAddress;
  if (token_.kind == Token::kName) {
    operand.name = token_.text;
    Advance();
    return ParseOffset(operand.offset) && Expect(']');
  }
  std::uint64_t address = 0;
  if (!ExpectInteger(address, std::numeric_limits<std::uint64_t>::max())) return false;
  operand.offset = static_cast<std::int64_t>(address);
  return Expect(']');
}

// +4, -4 or +-4, or nothing.
bool Parser::ParseOffset(std::int64_t& offset) {
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

}  // namespace tessera::soft::ptx
