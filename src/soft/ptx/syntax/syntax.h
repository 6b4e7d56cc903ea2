// An instruction as it stands in the text. Views point into the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::soft::ptx {

struct OperandSyntax {
  enum Kind {
    kName,     // register, special register, variable, label, function; with an offset: var+4
    kInteger,  // bits
    kFloat,
    kDouble,
    kVector,   // {a, b}
    kAddress,  // [name+offset] or [offset]
    kSink,     // _
  };
  Kind kind = kSink;
  std::string_view name;
  std::string_view component;  // x of %tid.x
  bool negated = false;        // !%p1
  std::uint64_t bits = 0;
  std::int64_t offset = 0;
  std::vector<OperandSyntax> elements;  // of a vector
  std::vector<OperandSyntax> partner;   // b of a|b; none or one
};

struct StatementSyntax {
  int line = 0;
  OperandSyntax guard;                      // kSink if there is none
  std::string_view text;                    // ld.global.nc.v2.f64
  std::string_view opcode;                  // ld
  std::vector<std::string_view> modifiers;  // global, nc, v2, f64
  std::vector<OperandSyntax> operands;
  // A call has these instead of operands:
  OperandSyntax callee;
  std::vector<OperandSyntax> results;
  std::vector<OperandSyntax> arguments;
};

}  // namespace tessera::soft::ptx
