#pragma once

#include <cstdint>

#include "base/clock.h"
#include "sched/residency/residency_state.h"
#include "wire/page.h"

namespace tessera::server {

// How much memory was moved, in bytes, and in how much time.
struct Moves {
  std::uint64_t out = 0, in = 0;
  Nanos time = 0;
  Moves& operator+=(const Moves& other);
};

// The account of moves of one process's memory: what was ordered, what the mover did, and what got lost on the way. If
// a mover or a line ends, its orders may have been carried out without a word; the program counts its moves in the
// shared page, so that they are found later. Bytes.
class MoveAccount {
 public:
  // Of a program that attaches: what it may at most say that it had in host memory, or in the file, before.
  void Bring(std::uint64_t most) { brought_ = most; }

  // More of the same may be ordered before the mover has done it.
  // `holes`: of what is to come in, as far as it is bounded what may be holes.
  void Order(sched::Moving moving, std::uint64_t bytes, Nanos now, std::uint64_t holes = 0);
  // Since the mover knows the process, so much room came free and was taken by moves, and of that so much was copied,
  // without holes. Returns what is new of the room.
  Moves NoteMoved(const Moves& of_room, const Moves& copied);
  // The mover has ended an order, without `bytes` of it. False: more was ordered meanwhile.
  bool NoteEnd(std::uint64_t bytes, Nanos now);
  // The line broke, and the mover does not know whether the last `bytes` of the order were moved.
  void LoseSight(std::uint64_t bytes);
  // The mover, or the line to it, is gone.
  void Abandon();
  // The program, which has no moves under way, asks for another line. Returns what was done without a word. From now on
  // another mover, or the same one anew, counts.
  Moves FindLost(const wire::Page& page);

  sched::Moving Doing() const { return doing_; }
  std::uint64_t Ordered() const { return ordered_; }  // and not reported as done
  std::uint64_t OrderedHoles() const { return ordered_holes_; }
  Nanos OrderedAt() const { return ordered_at_; }
  // Of `Ordered`: done, as the program says, and not reported yet. Where something is brought in it is to be read
  // before Swapped, else after it (wire/page.h).
  std::uint64_t Unreported(const wire::Page& page) const;
  // Bytes in host memory, as the program says, but no more than were brought out of it.
  std::uint64_t Swapped(const wire::Page& page) const;
  // Since the process attached; `time` includes a move that is under way.
  Moves SumAt(Nanos now) const;
  // Bytes that were moved out, or in, since this was last asked. For the trace.
  std::uint64_t TakeUntraced(sched::Moving moving);

 private:
  sched::Moving doing_ = sched::Moving::kNothing;
  std::uint64_t ordered_ = 0, ordered_holes_ = 0;
  Nanos ordered_at_ = 0;
  std::uint64_t lost_out_ = 0, lost_in_ = 0;  // ordered, and perhaps done
  std::uint64_t brought_ = 0;
  Moves mover_room_, mover_copied_;               // as the mover counts, since it knows the process
  std::uint64_t out_ = 0, in_ = 0;                // room, since the process attached
  Moves copied_;                                  // likewise
  std::uint64_t traced_out_ = 0, traced_in_ = 0;  // of these, what the trace has
  Nanos time_ = 0;                                // in which memory was moved
};

}  // namespace tessera::server
