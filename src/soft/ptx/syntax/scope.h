// The meaning of the names in PTX.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "soft/ptx/program.h"

namespace tessera::soft::ptx {

struct Symbol {
  enum Kind {
    kRegister,  // index; count > 0: name<count> declares name0 … name(count-1)
    kPredicate,
    kGlobal,         // index of the variable
    kShared,         // offset in the memory outside of kernels
    kKernelShared,   // offset in the kernel's own part
    kDynamicShared,  // .extern .shared
    kFrame,          // offset in the function's frame
    kParameter,      // offset in the kernel's parameters
    kFunction,       // index
    kBranchTargets,  // index of the table
    kNothing,
  };
  Kind kind = kRegister;
  std::uint32_t index = 0;  // or offset
  std::uint32_t count = 0;
  std::uint32_t bytes = 0;  // of a variable in a frame or a parameter
};

// The nested { } of a module. Names of an inner scope hide those of an outer one; labels can be used before they are
// declared, so a function's scopes are kept until its end.
class Scopes {
 public:
  Scopes() { scopes_.emplace_back(); }

  void BeginFunction(std::uint32_t function, Program& program);
  void EndFunction();
  void Push();
  void Pop();
  std::size_t current() const { return current_; }

  // False if this scope has the name already.
  bool Declare(std::string_view name, const Symbol& symbol);
  std::optional<Symbol> Find(std::string_view name) const;
  bool DeclareLabel(std::string_view name, std::uint32_t pc);
  std::optional<std::uint32_t> FindLabel(std::string_view name, std::size_t scope) const;

  // The function that is being read.
  std::uint32_t function_index() const { return function_; }
  Function& function() { return program_->functions[function_]; }
  // Room in its frame until the current scope ends.
  std::uint32_t AllocateFrame(std::uint64_t bytes, std::uint64_t alignment);

 private:
  struct Scope {
    std::size_t parent = 0;
    std::uint32_t frame_top = 0;
    std::unordered_map<std::string_view, Symbol> names;
    std::unordered_map<std::string_view, std::uint32_t> labels;
  };

  std::vector<Scope> scopes_;  // 0: the module
  std::size_t current_ = 0;
  std::uint32_t function_ = 0;
  std::uint32_t frame_top_ = 0;
  Program* program_ = nullptr;
};

}  // namespace tessera::soft::ptx
