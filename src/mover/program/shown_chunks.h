#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "mover/line/line.h"
#include "mover/program/questions.h"
#include "mover/program/workplace.h"

namespace tessera::mover {

// Chunks that a program has shown (wire/line.h, kShow) before it lets go of them in place: the daemon has descriptors
// of their memory by then, as of slots, and the program goes on meanwhile. A slot becomes the program's when it lets go
// of the chunk; the others are given up. For the loop's thread.
class ShownChunks {
 public:
  // All of them outlive this object.
  ShownChunks(const ProgramContext& context, Line& line, Questions& questions)
      : context_(context), line_(line), questions_(questions) {}

  // The program is to show so many. 0: no more, and those that it has not let go of are given up.
  void Show(std::uint64_t chunks);
  void GoOn();
  Result<void> OnAnswer(LinePacket& packet);  // kShown
  // As Program's. False: it is about none of these.
  bool OnKept(std::uint64_t number, int error);
  // The slot with the memory of a chunk that the program lets go of, if it was shown and the daemon keeps it.
  std::optional<Slot> Take(std::uint64_t chunk);
  // Of what is shown now; 0: nothing is.
  std::uint32_t round() const { return slots_.empty() ? 0 : round_; }
  // The line has ended, and with it what was shown.
  void EndLine();

 private:
  struct Shown {
    Slot slot = 0;
    bool kept = false;
  };
  void GiveUp();
  void End(int error);
  bool Asks() const { return questions_.Count(wire::LineType::kShow) > 0; }

  const ProgramContext& context_;
  Line& line_;
  Questions& questions_;
  std::map<std::uint64_t, Shown> slots_;  // by the program's name for the chunk
  std::uint64_t left_ = 0;                // to be shown
  bool pending_ = false;                  // the daemon waits for the end
  std::uint32_t round_ = 1;               // never 0
};

}  // namespace tessera::mover
