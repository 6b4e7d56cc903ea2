#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mover/line/line.h"
#include "mover/program/copier.h"
#include "mover/program/move_task.h"
#include "mover/program/shown_chunks.h"
#include "mover/program/workplace.h"

namespace tessera::mover {

// Chunks whose GPU memory stays where it is when the program lets go of them: makes slots of it, which the daemon keeps
// for the next mover before the program lets go. Nothing is imported or copied here: whoever copies it to the program's
// next memory does. For the loop's thread.
class Leavings {
 public:
  // All of them outlive this object; `task`: of what goes out.
  Leavings(const ProgramContext& context, Line& line, ShownChunks& shown, MoveTask& task)
      : context_(context), line_(line), shown_(shown), task_(task) {}

  // The whole chunks of an offer, taken out of it. Where one was shown before, its descriptor is empty.
  static LinePacket TakeWhole(LinePacket& offer);
  // The batch of those chunks that can stay in place; the others are the program's still. Null: none can. The program
  // may let go of it when `not_kept` is 0.
  std::shared_ptr<Batch> Leave(LinePacket packet);
  // As Program's, of one of these batches: the one that the program may let go of now, which may have lost all of its
  // chunks. The program keeps what the daemon does not keep: it would be lost with this mover.
  std::shared_ptr<Batch> OnKept(std::span<const std::shared_ptr<Batch>> batches, std::uint64_t number, int error);
  // The line has ended: the program was not told of these.
  void GiveBack(std::vector<std::shared_ptr<Batch>>& batches);

 private:
  std::optional<Batch::Entry> Leave(std::uint64_t chunk, ChunkPart part, UniqueFd fd);

  const ProgramContext& context_;
  Line& line_;
  ShownChunks& shown_;
  MoveTask& task_;
};

}  // namespace tessera::mover
