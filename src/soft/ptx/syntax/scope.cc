#include "soft/ptx/syntax/scope.h"

#include <algorithm>
#include <charconv>

namespace tessera::soft::ptx {

void Scopes::BeginFunction(std::uint32_t function, Program& program) {
  function_ = function;
  program_ = &program;
  frame_top_ = 0;
  Push();
}

void Scopes::EndFunction() {
  scopes_.resize(1);
  current_ = 0;
}

void Scopes::Push() {
  scopes_.push_back({.parent = current_, .frame_top = frame_top_});
  current_ = scopes_.size() - 1;
}

void Scopes::Pop() {
  frame_top_ = scopes_[current_].frame_top;
  current_ = scopes_[current_].parent;
}

bool Scopes::Declare(std::string_view name, const Symbol& symbol) {
  return scopes_[current_].names.emplace(name, symbol).second;
}

bool Scopes::DeclareLabel(std::string_view name, std::uint32_t pc) {
  return scopes_[current_].labels.emplace(name, pc).second;
}

std::optional<Symbol> Scopes::Find(std::string_view name) const {
  const std::size_t last_letter = name.find_last_not_of("0123456789");
  const std::size_t digits = last_letter == name.npos ? 0 : last_letter + 1;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), number);
  const bool numbered = error == std::errc{} && (name[digits] != '0' || name.size() == digits + 1);
  for (std::size_t i = current_;; i = scopes_[i].parent) {
    const auto& names = scopes_[i].names;
    if (const auto found = names.find(name); found != names.end() && found->second.count == 0) return found->second;
    const auto found = numbered ? names.find(name.substr(0, digits)) : names.end();
    if (found != names.end() && number < found->second.count) {
      Symbol symbol = found->second;
      symbol.index += number;
      return symbol;
    }
    if (i == 0) return std::nullopt;
  }
}

std::optional<std::uint32_t> Scopes::FindLabel(std::string_view name, std::size_t scope) const {
  for (; scope != 0; scope = scopes_[scope].parent) {
    const auto found = scopes_[scope].labels.find(name);
    if (found != scopes_[scope].labels.end()) return found->second;
  }
  return std::nullopt;
}

std::uint32_t Scopes::AllocateFrame(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t start = (frame_top_ + alignment - 1) / alignment * alignment;
  frame_top_ = static_cast<std::uint32_t>(start + bytes);
  function().frame_bytes = std::max(function().frame_bytes, (frame_top_ + 15) / 16 * 16);
  return static_cast<std::uint32_t>(start);
}

}  // namespace tessera::soft::ptx
