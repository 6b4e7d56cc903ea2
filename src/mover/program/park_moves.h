#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "mover/line/line.h"
#include "mover/program/questions.h"
#include "mover/program/stored_chunks.h"
#include "mover/program/workplace.h"

namespace tessera::mover {

// Parks one program, and ends that: what it has in slots stays there, and it gives the memory up, or gets it again.
// Nothing is copied. A slot keeps its key all the time, so that any mover finds it, whatever the program has heard. For
// the loop's thread.
class ParkMoves {
 public:
  // All of them outlive this object.
  ParkMoves(const ProgramContext& context, Line& line, Questions& questions, StoredChunks& stored)
      : context_(context), place_(context.place), line_(line), questions_(questions), stored_(stored) {}

  // The daemon wishes that the program is parked.
  void Park();
  // The daemon wishes that the program reaches its memory again: all that is parked comes back to its host memory, if
  // its driver imports that.
  void Return() { returning_ = stored_.imports; }
  // Asks the program for the next steps. `copies`: it moves memory to or from the GPU, `files`: to or from the file.
  // Parking begins when neither does; parked memory comes back when the first does not.
  void GoOn(bool copies, bool files);
  // Whether it is being parked just now: no other move begins then.
  bool Parks() const { return state_ == State::kReleasing || state_ == State::kAsking; }
  // The line has ended.
  void EndLine();

  // kReleased and kHeld, in answer to a question of this class's, or kParked. EPROTO if it is wrong: the caller is to
  // close the line.
  Result<void> OnAnswer(const wire::LineMessage& message);

 private:
  enum class State {
    kNone,
    kWaiting,    // for the end of other moves
    kReleasing,  // the program gives up one chunk after the other
    kAsking,     // it is asked what it holds still
  };
  std::vector<std::uint64_t> Next(Stored::Tier tier);
  void Ask(wire::LineType type, std::vector<std::uint64_t> chunks);
  void OnReleased(const Question& question, const wire::LineMessage& message);
  void OnHeld(const Question& question, const wire::LineMessage& message);
  void End(std::uint64_t held_chunks, int error);

  const ProgramContext& context_;
  Workplace& place_;
  Line& line_;
  Questions& questions_;
  StoredChunks& stored_;
  State state_ = State::kNone;
  bool returning_ = false;
  std::optional<std::uint64_t> next_ = 0;  // up to this name all chunks were looked at; none: all were
};

}  // namespace tessera::mover
