// The program's side of the line: answers what the mover asks (src/wire/line.h) by changing what backs the heap's
// chunks. The daemon sees to it that the program's work stands still whenever the mover asks.
#pragma once

#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "pager/heap/heap.h"
#include "pager/line/chunk_moves.h"
#include "pager/line/line_answer.h"
#include "wire/line.h"

namespace tessera::pager {

// Checks what the mover says on a line, and answers it. For one thread; the heap is for any.
class LineAgent {
 public:
  using Answer = LineAnswer;

  // The heap outlives this object.
  explicit LineAgent(Heap& heap);

  // Acts on a message of the mover's, with the descriptors that came along. Appends what is to be sent back, in order:
  // first chunks that were dropped, then the answer, if the message has one. False: it is no message that a mover may
  // send now, or the program is let go on without a mover (Room::Released); the line is to be closed, without an
  // answer.
  bool On(const wire::LineMessage& message, std::span<UniqueFd> fds, std::vector<Answer>* answers);

  // Appends what the mover has to hear without having asked: chunks that were freed while they were stored.
  void TakeDropped(std::vector<Answer>* answers);

  // The line is gone, and with it every copy that was under way: chunks that were offered or wanted stay as they are.
  void Lost();

  // Appends what a new mover hears first: the keys of all chunks that are away, and then of those in host memory. One
  // of those that it does not find stays there, and is not spoken of again.
  void Adopt(std::vector<Answer>* answers);

 private:
  using Message = wire::LineMessage;
  bool Act(const Message& message, std::span<UniqueFd> fds, std::vector<Answer>* answers)
      TESSERA_REQUIRES(moves_.chunks.mutex());
  bool OnAdopted(const Message& message) TESSERA_REQUIRES(moves_.chunks.mutex());
  void TakeDroppedLocked(std::vector<Answer>* answers) TESSERA_REQUIRES(moves_.chunks.mutex());
  void NameKeys(wire::LineType type, bool away, std::vector<Answer>* answers) TESSERA_REQUIRES(moves_.chunks.mutex());
  template <typename Is>
  ChunkMoves::Indices Named(const Message& message, Is is) const TESSERA_REQUIRES(moves_.chunks.mutex());

  ChunkMoves moves_;
};

}  // namespace tessera::pager
