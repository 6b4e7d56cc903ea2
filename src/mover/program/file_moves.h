#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "mover/line/line.h"
#include "mover/program/copy_moves.h"
#include "mover/program/disk.h"
#include "mover/program/questions.h"
#include "mover/program/save_moves.h"
#include "mover/program/stored_chunks.h"
#include "mover/program/workplace.h"

namespace tessera::mover {

// The moves of one program between slots of the pool and the swap file. Chunks go to the file while the program does
// not run; all of them come back before it is settled. For the loop's thread.
class FileMoves {
 public:
  // All of them outlive this object.
  FileMoves(const ProgramContext& context, Line& line, Questions& questions, StoredChunks& stored,
            const CopyMoves& copies);

  // The daemon wishes a move. While the program does not run (`stopped`) its chunks may go to the file.
  void Wish(bool stopped);
  // The daemon wishes that the program is settled: that what is in the file comes back, and that the program then maps
  // what is in host memory.
  void Settle();
  // Reads what has to come back, as far as slots are free, and asks the program to settle when nothing of it is away.
  void GoOn();
  // There will be no more free slots than there are.
  void Starve();
  // The line has ended. The disk's work goes on; what becomes of it is decided when it has ended.
  void EndLine();
  void OnDisk(const std::shared_ptr<FileMove>& move, const Result<void>& result);

  // kReleased, kHeld or kSettled. EPROTO if it is wrong: the caller is to close the line.
  Result<void> OnAnswer(const wire::LineMessage& message);
  // A chunk that the mover does not have yet, and that is away: in the file, parked, or in the program's own file.
  void AdoptAway(std::uint64_t chunk, std::uint64_t key, const SaveMoves& saves);

  // The number (Stored::number) of the chunk in a slot that was stored first, if it may go to the file.
  std::optional<std::uint64_t> Oldest() const;
  // Sends that chunk to the file. False: the file has no place.
  bool FileOldest();

  // Chunks that have to come back from the file now: all of them before the program runs, else those that are to be
  // loaded.
  std::uint64_t ToRead() const;
  // Chunks that the program may be asked to load; what is away it cannot. UINT64_MAX where nothing is.
  std::uint64_t Loadable() const;
  // Why chunks of the program cannot come back: errno value, 0 if they can.
  int error() const;
  bool UsesDisk() const { return on_disk_ > 0; }
  // Whether nothing is on its way to or from the file, and the daemon waits for no end of settling.
  bool Idle() const {
    return !settling_ && stored_.Count(Stored::Tier::kFiling) + stored_.Count(Stored::Tier::kReading) == 0;
  }

 private:
  void OnReleased(const FileMove& move, const wire::LineMessage& message);
  void OnHeld(const FileMove& move, const wire::LineMessage& message, bool away);
  void StartDisk(Stored& stored, const std::shared_ptr<FileMove>& move);
  void SayFiled(const std::shared_ptr<FileMove>& move);
  void SayRead(const std::shared_ptr<FileMove>& move);
  void GiveBackBoth(const FileMove& move);
  Stored* EndOf(const FileMove& move);
  void TellSettled(int error);

  const ProgramContext& context_;
  Workplace& place_;
  Line& line_;
  Questions& questions_;
  StoredChunks& stored_;
  const CopyMoves& copies_;
  bool stopped_ = false;     // the program does not run, and the daemon did not say that it is about to
  bool settling_ = false;    // chunks come back from the file, and then the program is to be settled
  std::size_t on_disk_ = 0;  // moves that the disk works at
};

}  // namespace tessera::mover
