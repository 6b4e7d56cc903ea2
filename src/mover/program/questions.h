#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "mover/program/copier.h"
#include "mover/program/disk.h"
#include "wire/line.h"

namespace tessera::mover {

// A message to a program that it has to answer.
struct Question {
  wire::LineType type{};
  std::uint32_t asked = 0;            // chunks, of kEvict, kSqueeze and kLoad
  std::uint64_t units = 0;            // that these may come to
  std::shared_ptr<Batch> batch;       // of kStored and kLoaded
  std::shared_ptr<FileMove> move;     // of kFiled and kRead, to and from the file
  std::vector<std::uint64_t> chunks;  // of kFiled and kRead of what stays in its slot: all that were named
};

// The questions that a program has not answered, in the order in which it must.
class Questions {
 public:
  void Expect(Question question, Nanos now) {
    if (questions_.empty()) asked_at_ = now;
    questions_.push_back(std::move(question));
  }
  // Takes the question that is to be answered next. EPROTO if it is not of this type.
  Result<Question> Answered(wire::LineType type, Nanos now);

  // Chunks of unanswered kEvict, kSqueeze and kLoad, what they may come to, and how many messages these are.
  std::uint64_t AskedChunks() const;
  std::uint64_t AskedUnits() const;
  std::size_t Asks() const {
    return static_cast<std::size_t>(std::ranges::count_if(questions_, [](const Question& q) { return q.asked > 0; }));
  }
  std::size_t Count(wire::LineType type) const {
    return static_cast<std::size_t>(std::ranges::count(questions_, type, &Question::type));
  }
  bool empty() const { return questions_.empty(); }
  // Whether the next question is about chunks that stay in their slots; how many of these there are.
  bool NextParks() const { return !empty() && !questions_.front().chunks.empty(); }
  std::size_t Parks() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(questions_, [](const Question& q) { return !q.chunks.empty(); }));
  }
  bool NextIs(wire::LineType type) const { return !empty() && questions_.front().type == type; }
  // Whether the program has had the next question for longer than `most`.
  bool WaitsLongerThan(Nanos most, Nanos now) const { return !empty() && now - asked_at_ > most; }

  void Clear() { questions_.clear(); }
  auto begin() const { return questions_.begin(); }
  auto end() const { return questions_.end(); }

 private:
  std::deque<Question> questions_;
  Nanos asked_at_ = kNever;  // when the next one became the next
};

}  // namespace tessera::mover
