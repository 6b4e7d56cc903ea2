#include "soft/ptx/parse/parser.h"

#include <algorithm>
#include <array>

#include "soft/ptx/run/built_in.h"

namespace tessera::soft::ptx {
namespace {

constexpr std::uint32_t kMaxParameterBytes = 32764;  // as CUDA 12.1 and later have it
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::size_t kMaxCallDepth = 256;
// Local memory of a kernel whose calls have no bound that the text tells: recursion and pointers.
constexpr std::uint32_t kUnboundedStackBytes = 16 << 10;
// PTX has as many registers as the compiler likes to name; the assembler of a real GPU makes do with these, with which
// a block of 1024 threads fits a multiprocessor.
constexpr std::uint32_t kFewestRegisters = 16, kMostRegisters = 64;
constexpr std::uint32_t kMaxStackBytes = 512 << 10;

}  // namespace

Result<void> Parser::Parse() {
  if (ParseModule()) Finish();
  if (error_) return std::unexpected(*error_);
  return {};
}

bool Parser::ParseModule() {
  if (!Accept("version")) return Failed("this is not PTX: it does not begin with .version");
  Advance();  // any: what an older or newer one lacks or adds shows in the instructions
  while (token_.kind != Token::kEnd) {
    if (!ParseTopLevel()) return false;
  }
  return true;
}

bool Parser::ParseTopLevel() {
  if (token_.kind == Token::kBad) return Failed(std::string(token_.text));
  if (token_.kind != Token::kDirective) return Failed("'" + std::string(token_.text) + "' is not expected here");
  if (Accept("target")) {
    do Advance();
    while (Accept(','));
    return true;
  }
  if (Accept("address_size")) {
    std::uint64_t bits = 0;
    if (!ExpectInteger(bits, 64)) return false;
    return bits == 64 || Unsupported("an address size of " + std::to_string(bits) + " bits");
  }
  if (Accept("file")) return SkipLocation();
  if (Accept("pragma")) return SkipTo(';');
  if (Accept("section")) return SkipTo('}');
  const bool external = Accept("extern");
  if (!external) Accept("visible") || Accept("weak") || Accept("common");
  if (Accept("entry")) return ParseFunction(true);
  if (Accept("func")) return ParseFunction(false);
  for (std::string_view space : {"global", "const", "shared"}) {
    if (Accept(space)) return ParseVariables(space, external);
  }
  return Unsupported("'." + std::string(token_.text) + "'");
}

bool Parser::ParseFunction(bool kernel) {
  std::vector<Declarator> results, names;
  std::vector<Parameter> result_places, places;
  std::string_view name;
  if (Accept("attribute") && !SkipTo(')')) return false;
  if (!kernel && token_.Is('(') && !ParseParameters(results, result_places)) return false;
  if (!ExpectName(name)) return false;
  if (token_.Is('(') && !ParseParameters(names, places)) return false;
  std::uint32_t max_threads = kMaxThreads;
  if (!ParseTuning(max_threads)) return false;

  std::uint32_t index = static_cast<std::uint32_t>(program_.functions.size());
  if (const auto known = scopes_.Find(name)) {
    if (known->kind != Symbol::kFunction) return Failed("'" + std::string(name) + "' is declared already");
    index = known->index;
  } else {
    program_.functions.push_back({.name = std::string(name), .kernel = kernel, .built_in = FindBuiltIn(name)});
    scopes_.Declare(name, {.kind = Symbol::kFunction, .index = index});
  }
  Function& function = program_.functions[index];
  if (!token_.Is('{')) {
    for (const Parameter& place : places) function.parameters.push_back({0, place.bytes});
    return Expect(';');
  }
  if (function.defined || function.kernel != kernel) {
    return Failed("'" + std::string(name) + "' is defined already");
  }
  if (kernel) {
    Kernel entry = {.name = std::string(name), .parameters = places, .max_threads = max_threads, .function = index};
    if (!places.empty()) entry.parameter_bytes = places.back().offset + places.back().bytes;
    kernels_.push_back(std::move(entry));
  }
  return ParseBody(index, results, result_places, names, places);
}

bool Parser::ParseParameters(std::vector<Declarator>& names, std::vector<Parameter>& parameters) {
  if (!Expect('(')) return false;
  if (Accept(')')) return true;
  do {
    if (!ParseParameter(names, parameters)) return false;
  } while (Accept(','));
  return Expect(')');
}

bool Parser::ParseParameter(std::vector<Declarator>& names, std::vector<Parameter>& parameters) {
  if (!Accept("param")) return Unsupported("a parameter that is not in .param space");
  Declaration declaration;
  Declarator declarator;
  if (!ParseDeclaration(declaration) || !ParseDeclarator(declaration, declarator)) return false;
  const std::uint64_t end = parameters.empty() ? 0 : parameters.back().offset + parameters.back().bytes;
  const std::uint64_t offset = (end + declaration.alignment - 1) / declaration.alignment * declaration.alignment;
  const std::uint64_t bytes = declarator.Bytes(declaration);
  if (declaration.type == Type::kPred || declarator.registers != 0 || offset + bytes > kMaxParameterBytes) {
    return Failed("'" + std::string(declarator.name) + "' cannot be a parameter");
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
  while (token_.kind == Token::kDirective) {
    const bool limit = token_.text == "maxntid" || token_.text == "reqntid";
    if (!limit && std::ranges::find(kIgnored, token_.text) == kIgnored.end()) {
      return Unsupported("'." + std::string(token_.text) + "'");
    }
    const bool pragma = token_.text == "pragma";
    Advance();
    if (pragma && !SkipTo(';')) return false;
    std::uint64_t product = 1;
    while (token_.kind == Token::kInteger) {
      std::uint64_t value = 0;
      if (!ExpectInteger(value, 1 << 20)) return false;
      product = std::min<std::uint64_t>(product * value, kMaxThreads);
      if (!Accept(',')) break;
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
      return Failed("'" + std::string(names[i].name) + "' is declared already");
    }
  }
  return true;
}

bool Parser::ParseBody(std::uint32_t index, const std::vector<Declarator>& results,
                       const std::vector<Parameter>& result_places, const std::vector<Declarator>& names,
                       const std::vector<Parameter>& places) {
  scopes_.BeginFunction(index, program_);
  register_words_ = 0;
  Function& function = program_.functions[index];
  function.defined = true;
  function.built_in = nullptr;
  function.first = static_cast<std::uint32_t>(program_.code.size());
  if (function.kernel) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Symbol symbol = {.kind = Symbol::kParameter, .index = places[i].offset, .bytes = places[i].bytes};
      if (!scopes_.Declare(names[i].name, symbol)) {
        return Failed("'" + std::string(names[i].name) + "' is declared already");
      }
    }
  } else if (!DeclareFrame(results, result_places, function.results) ||
             !DeclareFrame(names, places, function.parameters)) {
    return false;
  }
  if (!ParseBlock()) return false;
  // Whatever the text does, control does not run into the next function.
  const StatementSyntax end = {.line = token_.line, .text = "ret", .opcode = "ret"};
  if (!Take(decoder_.Decode(end)) || !Take(decoder_.ResolveLabels())) return false;
  if (function.kernel) kernels_.back().registers = std::clamp(register_words_, kFewestRegisters, kMostRegisters);
  scopes_.EndFunction();
  return true;
}

bool Parser::Finish() {
  if (!CheckCalls()) return false;
  for (std::uint64_t constant : program_.kernel_shared_constants) {
    program_.SetConstant(constant, program_.constants[constant * kWarpSize] + program_.shared_bytes);
  }
  std::vector<Visit> visits(program_.functions.size());
  for (Kernel& kernel : kernels_) {
    Function& function = program_.functions[kernel.function];
    kernel.static_shared_bytes = program_.shared_bytes + function.shared_bytes;
    StackBytes(kernel.function, visits, 0);
    if (function.calls_unbounded) function.stack_bytes += kUnboundedStackBytes;
    if (function.stack_bytes > kMaxStackBytes) {
      error_ =
          Error{ENOTSUP, "kernel '" + kernel.name + "' needs " + std::to_string(function.stack_bytes) +
                             " bytes of local memory per thread, the soft GPU has " + std::to_string(kMaxStackBytes)};
      return false;
    }
    kernel.local_bytes = function.stack_bytes;
  }
  return true;
}

bool Parser::CheckCalls() {
  for (const CallSite& call : program_.calls) {
    if (call.function == CallSite::kIndirect) continue;
    const Function& callee = program_.functions[call.function];
    const std::string line = "line " + std::to_string(call.line) + ": ";
    if (callee.kernel || (!callee.defined && callee.built_in == nullptr)) {
      error_ = Error{
          ENOTSUP, line + "call of '" + callee.name + "', which has no body here and is not provided by the soft GPU"};
      return false;
    }
    if (call.arguments.size() != callee.parameters.size()) {
      error_ = Error{EINVAL, line + "call of '" + callee.name + "' with " + std::to_string(call.arguments.size()) +
                                 " arguments, it takes " + std::to_string(callee.parameters.size())};
      return false;
    }
  }
  return true;
}

std::uint32_t Parser::StackBytes(std::uint32_t index, std::vector<Visit>& visits, std::size_t depth) {
  Function& function = program_.functions[index];
  if (visits[index] == Visit::kDone) return function.stack_bytes;
  visits[index] = Visit::kUnderWay;
  std::uint64_t deepest = 0;
  for (const CallSite& call : program_.calls) {
    if (call.caller != index) continue;
    if (call.function == CallSite::kIndirect || visits[call.function] == Visit::kUnderWay || depth == kMaxCallDepth) {
      function.calls_unbounded = true;
      continue;
    }
    deepest = std::max<std::uint64_t>(deepest, StackBytes(call.function, visits, depth + 1));
    function.calls_unbounded |= program_.functions[call.function].calls_unbounded;
  }
  visits[index] = Visit::kDone;
  function.stack_bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(function.frame_bytes + deepest, kMaxStackBytes + 16));
  return function.stack_bytes;
}

bool Parser::Accept(char symbol) {
  if (!token_.Is(symbol)) return false;
  Advance();
  return true;
}

bool Parser::Accept(std::string_view directive) {
  if (token_.kind != Token::kDirective || token_.text != directive) return false;
  Advance();
  return true;
}

bool Parser::Expect(char symbol) {
  if (Accept(symbol)) return true;
  return Failed(std::string("'") + symbol + "' is missing");
}

bool Parser::ExpectName(std::string_view& name) {
  if (token_.kind != Token::kName) return Failed("a name is missing");
  name = token_.text;
  Advance();
  return true;
}

bool Parser::ExpectInteger(std::uint64_t& value, std::uint64_t most) {
  if (token_.kind != Token::kInteger || token_.bits > most) {
    return Failed("a number of at most " + std::to_string(most) + " is missing");
  }
  value = token_.bits;
  Advance();
  return true;
}

bool Parser::SkipTo(char symbol) {
  while (!token_.Is(symbol)) {
    if (token_.kind == Token::kEnd) return Expect(symbol);
    Advance();
  }
  Advance();
  return true;
}

bool Parser::Failed(std::string message) {
  if (token_.kind == Token::kBad) message = token_.text;
  if (token_.kind == Token::kEnd) message += ", the text ends too early";
  if (!error_) error_ = Error{EINVAL, "line " + std::to_string(token_.line) + ": " + std::move(message)};
  return false;
}

bool Parser::Unsupported(const std::string& what) {
  if (token_.kind == Token::kBad) return Failed({});
  if (!error_) {
    error_ = Error{ENOTSUP, "line " + std::to_string(token_.line) + ": " + what + " is not supported by the soft GPU"};
  }
  return false;
}

bool Parser::Take(Result<void> result) {
  if (!result && !error_) error_ = result.error();
  return result.has_value();
}

}  // namespace tessera::soft::ptx
