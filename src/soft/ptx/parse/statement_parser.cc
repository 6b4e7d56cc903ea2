#include "soft/ptx/parse/statement_parser.h"

#include <limits>

namespace tessera::soft::ptx {

bool StatementParser::ParseBlock() {
  if (!tokens_.Expect('{')) return false;
  std::size_t depth = 1;
  while (depth > 0) {
    if (tokens_.Accept('{')) {
      scopes_.Push();
      ++depth;
    } else if (tokens_.Accept('}')) {
      if (--depth > 0) scopes_.Pop();
    } else if (tokens_.Current().kind == Token::kDirective) {
      if (!ParseBodyDirective()) return false;
    } else if (tokens_.Current().kind == Token::kName || tokens_.Current().Is('@')) {
      if (!ParseInstruction()) return false;
    } else if (!tokens_.Accept(';')) {
      return tokens_.Failed("'" + std::string(tokens_.Current().text) + "' is not expected here");
    }
  }
  return true;
}

bool StatementParser::ParseBodyDirective() {
  if (tokens_.Accept("loc")) return tokens_.SkipLocation();
  if (tokens_.Accept("pragma")) return tokens_.SkipTo(';');
  for (std::string_view space : {"reg", "local", "param", "shared"}) {
    if (tokens_.Accept(space)) return variables_.Parse(space, false);
  }
  if (tokens_.Accept("extern"))
    return tokens_.Accept("shared") ? variables_.Parse("shared", true) : tokens_.Unsupported("'.extern' here");
  return tokens_.Unsupported("'." + std::string(tokens_.Current().text) + "'");
}

bool StatementParser::ParseLabel(std::string_view name) {
  if (tokens_.Accept("callprototype")) return tokens_.SkipTo(';');
  if (tokens_.Accept("calltargets")) return tokens_.SkipTo(';');
  if (tokens_.Accept("branchtargets")) return ParseBranchTargets(name);
  if (scopes_.DeclareLabel(name, static_cast<std::uint32_t>(program_.code.size()))) return true;
  return tokens_.Failed("the label '" + std::string(name) + "' is there already");
}

bool StatementParser::ParseBranchTargets(std::string_view name) {
  std::vector<std::string_view> labels;
  do {
    if (!tokens_.ExpectName(labels.emplace_back())) return false;
  } while (tokens_.Accept(','));
  const Symbol symbol = {.kind = Symbol::kBranchTargets,
                         .index = decoder_.AddBranchTable(labels, tokens_.Current().line)};
  if (!scopes_.Declare(name, symbol)) return tokens_.Failed("'" + std::string(name) + "' is declared already");
  return tokens_.Expect(';');
}

bool StatementParser::ParseInstruction() {
  StatementSyntax statement;
  if (tokens_.Accept('@')) {
    if (!ParseOperand(statement.guard, false)) return false;
    if (statement.guard.kind != OperandSyntax::kName) return tokens_.Failed("a guard has to be a predicate");
  }
  statement.line = tokens_.Current().line;
  if (!tokens_.ExpectName(statement.opcode)) return false;
  if (statement.guard.kind == OperandSyntax::kSink && tokens_.Accept(':')) return ParseLabel(statement.opcode);
  const auto* end = statement.opcode.end();
  while (tokens_.Current().kind == Token::kDirective) {
    statement.modifiers.push_back(tokens_.Current().text);
    end = tokens_.Current().text.end();
    tokens_.Advance();
  }
  statement.text = std::string_view(statement.opcode.begin(), end);
  const bool read = statement.opcode == "call" ? ParseCall(statement) : ParseOperands(statement);
  return read && tokens_.Expect(';') && tokens_.Take(decoder_.Decode(statement));
}

bool StatementParser::ParseOperands(StatementSyntax& statement) {
  if (tokens_.Current().Is(';')) return true;
  do {
    if (!ParseOperand(statement.operands.emplace_back(), true)) return false;
  } while (tokens_.Accept(','));
  return true;
}

// call (results), callee, (arguments), prototype; all but the callee may be missing.
bool StatementParser::ParseCall(StatementSyntax& statement) {
  if (tokens_.Current().Is('(') && (!ParseNameList(statement.results) || !tokens_.Expect(','))) return false;
  if (!ParseOperand(statement.callee, false)) return false;
  if (statement.callee.kind != OperandSyntax::kName) return tokens_.Failed("a call of something that is no function");
  if (!tokens_.Accept(',')) return true;
  if (tokens_.Current().Is('(')) {
    if (!ParseNameList(statement.arguments)) return false;
    if (!tokens_.Accept(',')) return true;
  }
  std::string_view prototype;
  return tokens_.ExpectName(prototype);
}

bool StatementParser::ParseNameList(std::vector<OperandSyntax>& names) {
  if (!tokens_.Expect('(')) return false;
  if (tokens_.Accept(')')) return true;
  do {
    if (!ParseOperand(names.emplace_back(), false)) return false;
  } while (tokens_.Accept(','));
  return tokens_.Expect(')');
}

bool StatementParser::ParseOperand(OperandSyntax& operand, bool allow_vector) {
  operand.negated = tokens_.Accept('!');
  const bool minus = tokens_.Accept('-');
  const Token token = tokens_.Current();
  if (token.kind == Token::kBad) return tokens_.Failed({});
  tokens_.Advance();
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
        } while (tokens_.Accept(','));
        return tokens_.Expect('}');
      }
      [[fallthrough]];
    default:
      return tokens_.Failed("an operand is missing");
  }
  operand.kind = token.text == "_" ? OperandSyntax::kSink : OperandSyntax::kName;
  operand.name = token.text;
  if (tokens_.Current().kind == Token::kDirective) {
    operand.component = tokens_.Current().text;
    tokens_.Advance();
  }
  if (!tokens_.ExpectOffset(operand.offset)) return false;
  if (allow_vector && tokens_.Accept('|')) return ParseOperand(operand.partner.emplace_back(), false);
  return !minus || tokens_.Failed("a number is missing after the '-'");
}

bool StatementParser::End() {
  // Whatever the text does, control does not run into the next function.
  const StatementSyntax end = {.line = tokens_.Current().line, .text = "ret", .opcode = "ret"};
  return tokens_.Take(decoder_.Decode(end)) && tokens_.Take(decoder_.ResolveLabels());
}

// The rest of [name + offset] or [offset].
bool StatementParser::ParseAddress(OperandSyntax& operand) {
  operand.kind = OperandSyntax::kAddress;
  if (tokens_.Current().kind == Token::kName) {
    operand.name = tokens_.Current().text;
    tokens_.Advance();
    return tokens_.ExpectOffset(operand.offset) && tokens_.Expect(']');
  }
  std::uint64_t address = 0;
  if (!tokens_.ExpectInteger(address, std::numeric_limits<std::uint64_t>::max())) return false;
  operand.offset = static_cast<std::int64_t>(address);
  return tokens_.Expect(']');
}

}  // namespace tessera::soft::ptx
