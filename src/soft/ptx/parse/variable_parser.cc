#include "soft/ptx/parse/variable_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::soft::ptx {
namespace {

constexpr std::uint64_t kMaxVariableBytes = 1ull << 40;
constexpr std::uint64_t kMaxSharedBytes = 256 << 10;
constexpr std::uint64_t kMaxFrameBytes = 512 << 10;
// The most registers that a function may declare. No compiler's output comes near it.
constexpr std::uint32_t kMaxRegisters = 1 << 16;

std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

bool VariableParser::Parse(std::string_view space, bool external) {
  Declaration declaration;
  if (!ParseDeclaration(declaration)) return false;
  do {
    Declarator declarator;
    if (!ParseDeclarator(declaration, declarator) || !Declare(space, external, declaration, declarator)) return false;
  } while (tokens_.Accept(','));
  return tokens_.Expect(';');
}

// .align 8 .v2 .f32, and what else stands before the names.
bool VariableParser::ParseDeclaration(Declaration& declaration) {
  std::uint64_t elements = 1;
  while (tokens_.Current().kind == Token::kDirective) {
    const std::string_view word = tokens_.Current().text;
    if (const Type type = ParseType(word); type != Type::kNone) {
      declaration.type = type;
      tokens_.Advance();
    } else if (tokens_.Accept("align")) {
      if (!tokens_.ExpectInteger(declaration.alignment, 1 << 16)) return false;
      if (!std::has_single_bit(declaration.alignment)) return tokens_.Failed("an alignment has to be a power of two");
    } else if (tokens_.Accept("v2")) {
      elements = 2;
    } else if (tokens_.Accept("v4")) {
      elements = 4;
    } else if (tokens_.Accept("attribute")) {
      declaration.managed = true;
      if (!tokens_.Expect('(') || !tokens_.Accept("managed") || !tokens_.Expect(')'))
        return tokens_.Unsupported("this attribute");
    } else if (tokens_.Accept("ptr")) {
      // The target of a pointer parameter: .ptr .global .align 16
      tokens_.Accept("global") || tokens_.Accept("const") || tokens_.Accept("shared") || tokens_.Accept("local");
      std::uint64_t ignored = 0;
      if (tokens_.Accept("align") && !tokens_.ExpectInteger(ignored, 1 << 16)) return false;
    } else {
      return tokens_.Unsupported("'." + std::string(word) + "'");
    }
  }
  if (declaration.type == Type::kNone) return tokens_.Failed("a type is missing");
  declaration.element_bytes = BytesOf(declaration.type) * elements;
  declaration.alignment = std::max<std::uint64_t>({declaration.alignment, declaration.element_bytes, 1});
  return true;
}

// name, name<4>, name[2][3] or name[]
bool VariableParser::ParseDeclarator(const Declaration& declaration, Declarator& declarator) {
  if (!tokens_.ExpectName(declarator.name)) return false;
  if (tokens_.Accept('<')) {
    std::uint64_t count = 0;
    if (!tokens_.ExpectInteger(count, kMaxRegisters)) return false;
    if (count == 0) return tokens_.Failed("a range of no registers");
    declarator.registers = static_cast<std::uint32_t>(count);
    return tokens_.Expect('>');
  }
  while (tokens_.Accept('[')) {
    if (tokens_.Accept(']')) {
      declarator.unsized = true;
      declarator.elements = 0;
      continue;
    }
    std::uint64_t count = 0;
    if (!tokens_.ExpectInteger(count, kMaxVariableBytes) || !tokens_.Expect(']')) return false;
    const std::uint64_t most = kMaxVariableBytes / std::max<std::uint64_t>(declaration.element_bytes, 1);
    if (count != 0 && declarator.elements > most / count) return tokens_.Failed("a variable of more than a terabyte");
    declarator.elements *= count;
  }
  return true;
}

bool VariableParser::DeclareRegisters(const Declaration& declaration, const Declarator& declarator) {
  Function& function = scopes_.function();
  const bool predicate = declaration.type == Type::kPred;
  std::uint32_t& used = predicate ? function.predicates : function.registers;
  const std::uint32_t count = std::max(declarator.registers, 1u);
  if (declaration.element_bytes > 8) return tokens_.Unsupported("a vector register");
  if (used + count > kMaxRegisters) return tokens_.Failed("more than " + std::to_string(kMaxRegisters) + " registers");
  const Symbol symbol = {
      .kind = predicate ? Symbol::kPredicate : Symbol::kRegister, .index = used, .count = declarator.registers};
  used += count;
  register_words_ += predicate ? 0 : count * (declaration.element_bytes == 8 ? 2 : 1);
  return scopes_.Declare(declarator.name, symbol) ||
         tokens_.Failed("'" + std::string(declarator.name) + "' is declared already");
}

bool VariableParser::DeclareShared(bool external, const Declaration& declaration, const Declarator& declarator) {
  Symbol symbol;
  if (external || declarator.unsized) {
    symbol.kind = Symbol::kDynamicShared;
    program_.dynamic_shared_alignment =
        std::max(program_.dynamic_shared_alignment, static_cast<std::uint32_t>(declaration.alignment));
  } else {
    const bool own = scopes_.current() != 0 && scopes_.function().kernel;
    std::uint32_t& used = own ? scopes_.function().shared_bytes : program_.shared_bytes;
    const std::uint64_t offset = AlignUp(used, declaration.alignment);
    const std::uint64_t end = offset + declarator.Bytes(declaration);
    if (end > kMaxSharedBytes)
      return tokens_.Failed("more than " + std::to_string(kMaxSharedBytes) + " bytes of shared memory");
    symbol.kind = own ? Symbol::kKernelShared : Symbol::kShared;
    symbol.index = static_cast<std::uint32_t>(offset);
    used = static_cast<std::uint32_t>(end);
  }
  return scopes_.Declare(declarator.name, symbol) ||
         tokens_.Failed("'" + std::string(declarator.name) + "' is declared already");
}

bool VariableParser::Declare(std::string_view space, bool external, const Declaration& declaration,
                             const Declarator& declarator) {
  if (space == "reg") return DeclareRegisters(declaration, declarator);
  if (declarator.registers != 0 || declaration.type == Type::kPred) {
    return tokens_.Failed("'" + std::string(declarator.name) + "' cannot be in memory");
  }
  if (space == "shared") return DeclareShared(external, declaration, declarator);
  if (space == "local" || space == "param") {
    const std::uint64_t bytes = declarator.Bytes(declaration);
    if (bytes > kMaxFrameBytes || scopes_.function().frame_bytes > kMaxFrameBytes) {
      return tokens_.Failed("more than " + std::to_string(kMaxFrameBytes) + " bytes of local memory");
    }
    const std::uint32_t offset = scopes_.AllocateFrame(bytes, std::min<std::uint64_t>(declaration.alignment, 16));
    const Symbol symbol = {.kind = Symbol::kFrame, .index = offset, .bytes = static_cast<std::uint32_t>(bytes)};
    return scopes_.Declare(declarator.name, symbol) ||
           tokens_.Failed("'" + std::string(declarator.name) + "' is declared already");
  }
  if (external)
    return tokens_.Unsupported("linking with a variable of another module ('" + std::string(declarator.name) + "')");
  VariableImage image;
  std::uint64_t elements = declarator.elements;
  const auto index = static_cast<std::uint32_t>(variables_.size());
  if (!scopes_.Declare(declarator.name, {.kind = Symbol::kGlobal, .index = index})) {
    return tokens_.Failed("'" + std::string(declarator.name) + "' is declared already");
  }
  if (tokens_.Accept('=') && !ParseInitialiser(declaration, image, elements)) return false;
  if (declarator.unsized && elements == 0) return tokens_.Failed("'" + std::string(declarator.name) + "' has no size");
  variables_.push_back({.name = std::string(declarator.name),
                        .bytes = elements * declaration.element_bytes,
                        .alignment = declaration.alignment,
                        .constant = space == "const",
                        .managed = declaration.managed});
  program_.variables.push_back(std::move(image));
  return true;
}

// A value or {a, b, …}; `elements` grows from 0 with the list where the declaration gives no size.
bool VariableParser::ParseInitialiser(const Declaration& declaration, VariableImage& image, std::uint64_t& elements) {
  const std::uint64_t element = BytesOf(declaration.type);
  const bool unsized = elements == 0;
  const std::uint64_t room = unsized ? kMaxVariableBytes / element : elements * (declaration.element_bytes / element);
  if (!tokens_.Accept('{')) return ParseElement(declaration, image, 0);
  std::uint64_t count = 0;
  while (!tokens_.Accept('}')) {
    if (tokens_.Current().Is('{')) return tokens_.Unsupported("an initial value in braces of its own");
    if (count == room) return tokens_.Failed("more initial values than elements");
    if (!ParseElement(declaration, image, count++ * element)) return false;
    if (!tokens_.Current().Is('}') && !tokens_.Expect(',')) return false;
  }
  if (unsized) elements = count * element / declaration.element_bytes;
  return true;
}

// A number, an address, or with 0xff00(variable) one byte of an address.
bool VariableParser::ParseElement(const Declaration& declaration, VariableImage& image, std::uint64_t offset) {
  const std::uint64_t bytes = BytesOf(declaration.type);
  if (tokens_.Current().kind == Token::kName) return ParseAddressElement(image, offset, bytes, 0);
  const bool negative = tokens_.Accept('-');
  const Token number = tokens_.Current();
  if (number.kind == Token::kBad) return tokens_.Failed({});
  tokens_.Advance();
  std::uint64_t bits = number.bits;
  switch (number.kind) {
    case Token::kInteger:
      if (tokens_.Current().Is('(')) {
        const auto shift = static_cast<std::uint8_t>(std::countr_zero(bits) & 63);
        if (bits >> shift != 0xff || bytes != 1) return tokens_.Unsupported("this part of an address");
        tokens_.Advance();
        return ParseAddressElement(image, offset, bytes, shift) && tokens_.Expect(')');
      }
      if (declaration.type == Type::kF32) bits = std::bit_cast<std::uint32_t>(static_cast<float>(bits));
      if (declaration.type == Type::kF64) bits = std::bit_cast<std::uint64_t>(static_cast<double>(bits));
      break;
    case Token::kFloat:
      if (declaration.type == Type::kF64) {
        bits = std::bit_cast<std::uint64_t>(double{std::bit_cast<float>(static_cast<std::uint32_t>(bits))});
      }
      break;
    case Token::kDouble:
      if (declaration.type == Type::kF32) {
        bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
      }
      break;
    default:
      return tokens_.Failed("an initial value is missing");
  }
  if (negative) {
    if (declaration.type == Type::kF32)
      bits ^= 1u << 31;
    else if (declaration.type == Type::kF64)
      bits ^= 1ull << 63;
    else
      bits = 0 - bits;
  }
  if (image.bytes.size() < offset + bytes) image.bytes.resize(offset + bytes);
  std::memcpy(image.bytes.data() + offset, &bits, bytes);
  return true;
}

bool VariableParser::ParseAddressElement(VariableImage& image, std::uint64_t offset, std::uint64_t bytes,
                                         std::uint8_t shift) {
  std::string_view name;
  std::int64_t addend = 0;
  if (!tokens_.ExpectName(name)) return false;
  const bool generic = name == "generic" && tokens_.Accept('(');
  if (generic && !tokens_.ExpectName(name)) return false;
  if (generic && !tokens_.Expect(')')) return false;
  if (!tokens_.ExpectOffset(addend)) return false;
  const auto symbol = scopes_.Find(name);
  Relocation relocation = {.at = offset,
                           .addend = static_cast<std::uint64_t>(addend),
                           .shift = shift,
                           .bytes = static_cast<std::uint8_t>(bytes)};
  if (symbol && symbol->kind == Symbol::kGlobal) {
    relocation.variable = symbol->index;
  } else if (symbol && symbol->kind == Symbol::kFunction) {
    relocation.variable = Relocation::kNoVariable;
    relocation.addend += FunctionAddress(symbol->index);
  } else {
    return tokens_.Failed("'" + std::string(name) + "' is not declared or has no address");
  }
  if (shift == 0 && bytes != 8 && bytes != 1) return tokens_.Failed("an address does not fit here");
  if (image.bytes.size() < offset + bytes) image.bytes.resize(offset + bytes);
  image.pointers.push_back(relocation);
  return true;
}

}  // namespace tessera::soft::ptx
