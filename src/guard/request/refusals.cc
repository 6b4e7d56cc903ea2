#include "guard/request/refusals.h"

#include <algorithm>

namespace tessera::guard {

pid_t* Refusals::Admit(std::uint64_t tree, Nanos now) {
  Program& program = programs_[tree];
  if (now >= program.until && program.left_out.count == 0) program = {.until = now + kSecond};
  if (program.told == kMostPerSecond) {
    ++program.left_out.count;
    next_due_ = std::min(next_due_, program.until);
    return nullptr;
  }
  ++program.told;
  return &program.left_out.process;
}

std::vector<Refusals::LeftOut> Refusals::TakeDue(Nanos now) {
  std::vector<LeftOut> due;
  if (now < next_due_) return due;
  std::erase_if(programs_, [&](const auto& entry) {
    const Program& program = entry.second;
    if (now < program.until) return false;
    if (program.left_out.count > 0) due.push_back(program.left_out);
    return true;
  });
  SetNextDue();
  return due;
}

std::optional<Refusals::LeftOut> Refusals::Forget(std::uint64_t tree) {
  const auto program = programs_.extract(tree);
  if (!program || program.mapped().left_out.count == 0) return {};
  SetNextDue();
  return program.mapped().left_out;
}

void Refusals::SetNextDue() {
  next_due_ = kNever;
  for (const auto& [tree, program] : programs_) {
    if (program.left_out.count > 0) next_due_ = std::min(next_due_, program.until);
  }
}

}  // namespace tessera::guard
