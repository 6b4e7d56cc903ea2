#include "soft/ptx/parse/parser.h"

#include <algorithm>
#include <array>

#include "soft/ptx/parse/call_graph.h"
#include "soft/ptx/run/built_in.h"

namespace tessera::soft::ptx {
namespace {

constexpr std::uint32_t kMaxParameterBytes = 32764;  // as CUDA 12.1 and later have it
constexpr std::uint32_t kMaxThreads = 1024;
// PTX has as many registers as the compiler likes to name; the assembler of a real GPU makes do with these, with which
// a block of 1024 threads fits a multiprocessor.
constexpr std::uint32_t kFewestRegisters = 16, kMostRegisters = 64;

}  // namespace

Result<void> Parser::Parse() {
  ParseModule();
  if (tokens_.FirstError()) return std::unexpected(*tokens_.FirstError());
  return FinishCalls(program_, kernels_);
}

bool Parser::ParseModule() {
  if (!tokens_.Accept("version")) return tokens_.Failed("this is not PTX: it does not begin with .version");
  tokens_.Advance();  // any: what an older or newer one lacks or adds shows in the instructions
  while (tokens_.Current().kind != Token::kEnd) {
    if (!ParseTopLevel()) return false;
  }
  return true;
}

bool Parser::ParseTopLevel() {
  if (tokens_.Current().kind == Token::kBad) return tokens_.Failed(std::string(tokens_.Current().text));
  if (tokens_.Current().kind != Token::kDirective)
    return tokens_.Failed("'" + std::string(tokens_.Current().text) + "' is not expected here");
  if (tokens_.Accept("target")) {
    do tokens_.Advance();
    while (tokens_.Accept(','));
    return true;
  }
  if (tokens_.Accept("address_size")) {
    std::uint64_t bits = 0;
    if (!tokens_.ExpectInteger(bits, 64)) return false;
    return bits == 64 || tokens_.Unsupported("an address size of " + std::to_string(bits) + " bits");
  }
  if (tokens_.Accept("file")) return tokens_.SkipLocation();
  if (tokens_.Accept("pragma")) return tokens_.SkipTo(';');
  if (tokens_.Accept("section")) return tokens_.SkipTo('}');
  const bool external = tokens_.Accept("extern");
  if (!external) tokens_.Accept("visible") || tokens_.Accept("weak") || tokens_.Accept("common");
  if (tokens_.Accept("entry")) return ParseFunction(true);
  if (tokens_.Accept("func")) return ParseFunction(false);
  for (std::string_view space : {"global", "const", "shared"}) {
    if (tokens_.Accept(space)) return variable_parser_.Parse(space, external);
  }
  return tokens_.Unsupported("'." + std::string(tokens_.Current().text) + "'");
}

bool Parser::ParseFunction(bool kernel) {
  std::vector<Declarator> results, names;
  std::vector<Parameter> result_places, places;
  std::string_view name;
  if (tokens_.Accept("attribute") && !tokens_.SkipTo(')')) return false;
  if (!kernel && tokens_.Current().Is('(') && !ParseParameters(results, result_places)) return false;
  if (!tokens_.ExpectName(name)) return false;
  if (tokens_.Current().Is('(') && !ParseParameters(names, places)) return false;
  std::uint32_t max_threads = kMaxThreads;
  if (!ParseTuning(max_threads)) return false;

  std::uint32_t index = static_cast<std::uint32_t>(program_.functions.size());
  if (const auto known = scopes_.Find(name)) {
    if (known->kind != Symbol::kFunction) return tokens_.Failed("'" + std::string(name) + "' is declared already");
    index = known->index;
  } else {
    program_.functions.push_back({.name = std::string(name), .kernel = kernel, .built_in = FindBuiltIn(name)});
    scopes_.Declare(name, {.kind = Symbol::kFunction, .index = index});
  }
  Function& function = program_.functions[index];
  if (!tokens_.Current().Is('{')) {
    for (const Parameter& place : places) function.parameters.push_back({0, place.bytes});
    return tokens_.Expect(';');
  }
  if (function.defined || function.kernel != kernel) {
    return tokens_.Failed("'" + std::string(name) + "' is defined already");
  }
  if (kernel) {
    Kernel entry = {.name = std::string(name), .parameters = places, .max_threads = max_threads, .function = index};
    if (!places.empty()) entry.parameter_bytes = places.back().offset + places.back().bytes;
    kernels_.push_back(std::move(entry));
  }
  return ParseBody(index, results, result_places, names, places);
}

bool Parser::ParseParameters(std::vector<Declarator>& names, std::vector<Parameter>& parameters) {
  if (!tokens_.Expect('(')) return false;
  if (tokens_.Accept(')')) return true;
  do {
    if (!ParseParameter(names, parameters)) return false;
  } while (tokens_.Accept(','));
  return tokens_.Expect(')');
}

bool Parser::ParseParameter(std::vector<Declarator>& names, std::vector<Parameter>& parameters) {
  if (!tokens_.Accept("param")) return tokens_.Unsupported("a parameter that is not in .param space");
  Declaration declaration;
  Declarator declarator;
  if (!variable_parser_.ParseDeclaration(declaration) || !variable_parser_.ParseDeclarator(declaration, declarator))
    return false;
  const std::uint64_t end = parameters.empty() ? 0 : parameters.back().offset + parameters.back().bytes;
  const std::uint64_t offset = (end + declaration.alignment - 1) / declaration.alignment * declaration.alignment;
  const std::uint64_t bytes = declarator.Bytes(declaration);
  if (declaration.type == Type::kPred || declarator.registers != 0 || offset + bytes > kMaxParameterBytes) {
    return tokens_.Failed("'" + std::string(declarator.name) + "' cannot be a parameter");
  }
  names.push_back(declarator);
  parameters.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes),
                        static_cast<std::uint32_t>(declaration.alignment)});
  return true;
}

// .maxntid and its like. Only limits that a launch must keep are of interest.
bool Parser::ParseTuning(std::uint32_t& max_threads) {
  constexpr std::array<std::string_view, 9> kIgnored = {"minnctapersm",      "maxnctapersm",   "maxnreg",
                                                        "noreturn",          "pragma",         "explicitcluster",
                                                        "reqnctapercluster", "maxclusterrank", "blocksareclusters"};
  while (tokens_.Current().kind == Token::kDirective) {
    const bool limit = tokens_.Current().text == "maxntid" || tokens_.Current().text == "reqntid";
    if (!limit && std::ranges::find(kIgnored, tokens_.Current().text) == kIgnored.end()) {
      return tokens_.Unsupported("'." + std::string(tokens_.Current().text) + "'");
    }
    const bool pragma = tokens_.Current().text == "pragma";
    tokens_.Advance();
    if (pragma && !tokens_.SkipTo(';')) return false;
    std::uint64_t product = 1;
    while (tokens_.Current().kind == Token::kInteger) {
      std::uint64_t value = 0;
      if (!tokens_.ExpectInteger(value, 1 << 20)) return false;
      product = std::min<std::uint64_t>(product * value, kMaxThreads);
      if (!tokens_.Accept(',')) break;
    }
    if (limit) max_threads = static_cast<std::uint32_t>(product);
  }
  return true;
}

bool Parser::DeclareFrame(const std::vector<Declarator>& names, const std::vector<Parameter>& places,
                          std::vector<FrameSlot>& slots) {
  slots.clear();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::uint32_t offset = scopes_.AllocateFrame(places[i].bytes, places[i].alignment);
    slots.push_back({offset, places[i].bytes});
    if (names[i].name == "_") continue;
    const Symbol symbol = {.kind = Symbol::kFrame, .index = offset, .bytes = places[i].bytes};
    if (!scopes_.Declare(names[i].name, symbol)) {
      return tokens_.Failed("'" + std::string(names[i].name) + "' is declared already");
    }
  }
  return true;
}

bool Parser::ParseBody(std::uint32_t index, const std::vector<Declarator>& results,
                       const std::vector<Parameter>& result_places, const std::vector<Declarator>& names,
                       const std::vector<Parameter>& places) {
  scopes_.BeginFunction(index, program_);
  variable_parser_.BeginFunction();
  Function& function = program_.functions[index];
  function.defined = true;
  function.built_in = nullptr;
  function.first = static_cast<std::uint32_t>(program_.code.size());
  if (function.kernel) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Symbol symbol = {.kind = Symbol::kParameter, .index = places[i].offset, .bytes = places[i].bytes};
      if (!scopes_.Declare(names[i].name, symbol)) {
        return tokens_.Failed("'" + std::string(names[i].name) + "' is declared already");
      }
    }
  } else if (!DeclareFrame(results, result_places, function.results) ||
             !DeclareFrame(names, places, function.parameters)) {
    return false;
  }
  if (!statement_parser_.ParseBlock() || !statement_parser_.End()) return false;
  if (function.kernel)
    kernels_.back().registers = std::clamp(variable_parser_.RegisterWords(), kFewestRegisters, kMostRegisters);
  scopes_.EndFunction();
  return true;
}

}  // namespace tessera::soft::ptx
