#include "mover/program/questions.h"

#include <cerrno>

namespace tessera::mover {

Result<Question> Questions::Answered(wire::LineType type, Nanos now) {
  if (empty() || questions_.front().type != type) return Fail(EPROTO, "it answered what it was not asked");
  Question question = std::move(questions_.front());
  questions_.pop_front();
  asked_at_ = empty() ? kNever : now;
  return question;
}

std::uint64_t Questions::AskedChunks() const {
  std::uint64_t chunks = 0;
  for (const Question& question : questions_) chunks += question.asked;
  return chunks;
}

std::uint64_t Questions::AskedUnits() const {
  std::uint64_t units = 0;
  for (const Question& question : questions_) units += question.units;
  return units;
}

}  // namespace tessera::mover
