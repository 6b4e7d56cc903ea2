#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mover/line/line.h"
#include "mover/program/copier.h"
#include "mover/program/leavings.h"
#include "mover/program/move_task.h"
#include "mover/program/questions.h"
#include "mover/program/shown_chunks.h"
#include "mover/program/stored_chunks.h"
#include "mover/program/workplace.h"

namespace tessera::mover {

// Chunks that a program is asked for at a time. With two at a time room comes free 11 ms after the order, with eight
// 41 ms (docs/hardware-log.md, 2026-11-22).
inline constexpr std::uint64_t kAtATime = 2;
// The same where nobody runs before all have moved: fewer, larger batches take less time.
inline constexpr std::uint64_t kAtATimeOfAll = 4;

// Since the mover knows the program, by Direction: units of GPU memory that came free or were taken by moves, and the
// contents of these.
struct MoveCounts {
  std::array<std::uint64_t, 2> moved{}, copied{};

  void Tell(const ProgramContext& context) const {
    context.Tell({.type = wire::MoverType::kMoved,
                  .bytes = moved[0] * wire::kUnitBytes,
                  .other = moved[1] * wire::kUnitBytes,
                  .copied_out = copied[0] * wire::kUnitBytes,
                  .copied_in = copied[1] * wire::kUnitBytes});
  }
};

// The moves of one program between the GPU and slots of the pool: what the daemon wishes, what the program was asked
// for, and what is being copied. Moves of one direction at a time. For the loop's thread.
class CopyMoves {
 public:
  // All of them outlive this object.
  CopyMoves(const ProgramContext& context, Line& line, Questions& questions, StoredChunks& stored, ShownChunks& shown);

  // The daemon wishes that GPU memory of this many units more is moved. `holes`: going out, not 0: chunks with holes
  // go, those with most first; coming in: so many of the units may be holes, or kAnyHoles.
  void Wish(Direction direction, std::uint64_t units, std::uint64_t holes);
  // Whether what goes out from now on is parked at once: the program never holds it, and nothing of whole chunks is
  // copied; their GPU memory becomes slots.
  void GoAway(bool in_place) {
    in_place_ = in_place;
    left_out_ = 0;
  }
  // Takes up the next wish if none is under way.
  void Activate();
  // Asks the program for as much as there is room for, and ends a wish that is done. The program can be asked to load
  // `loadable` chunks; `error` is why others cannot come, 0 if they can.
  void GoOn(std::uint64_t loadable, int error);
  // There will be no more free slots than there are. Whether a wish ends for that.
  bool Starve();
  // The line has ended. Copies go on; what becomes of them is decided when they have ended.
  void EndLine();
  void OnCopied(const std::shared_ptr<Batch>& batch);
  // As Program's.
  void OnKept(std::uint64_t number, int error);

  // kOffer, kFreed, kWant or kTaken. EPROTO if it is wrong: the caller is to close the line.
  Result<void> OnAnswer(LinePacket& packet);
  // A chunk on its way that the program needs no more: its slot is free when the copy has ended. False: it is not on
  // its way.
  bool Drop(Direction direction, std::uint64_t chunk);

  // Chunks for which slots are needed that the program does not have.
  std::uint64_t Demand() const;
  // Chunks that are to be loaded and are not on their way.
  std::uint64_t ToLoad() const;
  bool Loads() const { return active_ == Direction::kIn; }
  // Whether chunks are on their way to slots.
  bool Stores() const;
  // Whether the chunk was given to the mover, and is not stored yet.
  bool GoesOut(std::uint64_t chunk) const;
  bool NothingUnderWay() const { return batches_.empty(); }
  // Whether the daemon waits for the end of no wish.
  bool Idle() const { return batches_.empty() && !tasks_[0].pending && !tasks_[1].pending; }
  bool Copies() const { return copying_ > 0; }

 private:
  MoveTask& TaskOf(Direction direction) { return tasks_[static_cast<std::size_t>(direction)]; }
  const MoveTask& TaskOf(Direction direction) const { return tasks_[static_cast<std::size_t>(direction)]; }
  void Ask(Direction direction, std::uint32_t count);
  void Finish(Direction direction, std::uint64_t left, int error);
  Result<void> OnOffer(LinePacket& packet);
  Result<void> StartCopyOut(LinePacket& packet);
  void LeaveInPlace(LinePacket whole);
  bool HasSlots() const;
  Result<void> OnFreed(const wire::LineMessage& message);
  Result<void> OnWant(LinePacket& packet);
  Result<void> OnTaken(const wire::LineMessage& message);
  Result<void> AnsweredAsk(wire::LineType question, const wire::LineMessage& answer);
  Result<void> EndWrongly(const std::shared_ptr<Batch>& batch, const char* why);
  void Start(std::shared_ptr<Batch> batch);
  void Forget(std::shared_ptr<Batch> batch);
  void GiveStored(const std::shared_ptr<Batch>& batch);
  void GiveLoaded(const std::shared_ptr<Batch>& batch);

  const ProgramContext& context_;
  Workplace& place_;
  Line& line_;
  Questions& questions_;
  StoredChunks& stored_;
  ShownChunks& shown_;
  std::array<MoveTask, 2> tasks_;  // by Direction
  Leavings leavings_;
  std::vector<std::shared_ptr<Batch>> batches_;  // being copied, or not answered yet
  std::size_t copying_ = 0;                      // of batches_
  std::optional<Direction> active_;              // of the wish that is under way
  bool in_place_ = false;
  std::uint64_t left_out_ = 0;  // chunks that cannot go out in place, and found no slot
  MoveCounts counts_;
};

}  // namespace tessera::mover
