#include "soft/ptx/op/emitter.h"

#include <utility>

namespace tessera::soft::ptx {

Instruction& Emitter::Emit(Instruction::Handler handler) {
  program_.code.push_back({.handler = handler, .guard = guard_, .line = statement_->line});
  return program_.code.back();
}

void Emitter::Refuse() {
  if (error_) return;
  error_ = Error{ENOTSUP, "line " + std::to_string(statement_->line) + ": instruction '" +
                              std::string(statement_->text) + "' is not supported by the soft GPU"};
}

void Emitter::Wrong(std::string message) {
  if (error_) return;
  error_ = Error{EINVAL, "line " + std::to_string(statement_->line) + ": " + std::move(message)};
}

}  // namespace tessera::soft::ptx
