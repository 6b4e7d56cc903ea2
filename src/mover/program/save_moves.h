#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mover/program/disk.h"
#include "mover/program/stored_chunks.h"
#include "mover/program/workplace.h"
#include "mover/suspended/suspended_file.h"

namespace tessera::mover {

// The moves of one parked program between slots of the pool and a file of its own. A chunk leaves its slot when the
// whole file is finished, and the file is emptied when all of it is in slots again, under the keys that the program
// knows: at any moment some mover finds all. For the loop's thread.
class SaveMoves {
 public:
  // All of them outlive this object. `file`: what an earlier mover has finished, if that is known.
  SaveMoves(const ProgramContext& context, StoredChunks& stored, std::shared_ptr<SuspendedFile> file)
      : context_(context), place_(context.place), stored_(stored), file_(std::move(file)) {}

  // The daemon wishes that what is parked goes to the file, or comes back. Begins when the program has named all that
  // it has (`named`), and the daemon is told of the end.
  void Save(UniqueFd file, const SuspendedHeader& of);
  void Unsave() { Want(Wish::kUnsave); }
  // The same where the daemon only wishes that the program has its memory again. What fails then is StoredChunks::
  // not_back.
  void Return();
  // `idle`: no other move of it is under way.
  void GoOn(bool idle, bool named);
  // Whether it works for such a wish, or waits to begin: no other move begins then.
  bool Busy() const { return wish_ != Wish::kNone; }
  // There will be no more free slots than there are.
  void Starve();
  // The line has ended. The disk's work goes on; what becomes of it is decided when it has ended.
  void EndLine();

  // Chunks for which slots are needed.
  std::uint64_t ToRead() const;
  // The entry of the file's table with this key, if there is one.
  std::optional<Place> Find(std::uint64_t key) const;

 private:
  enum class Wish { kNone, kSave, kUnsave, kReturn };
  void Want(Wish wish);
  bool BeginSave();
  void TellLeft();
  void SaveNext();
  void Finish();
  void LeaveSlots();
  void UnsaveNext();
  void Clear();
  void StartDisk(Disk::Work work, void (SaveMoves::*done)(const Result<void>&));
  void OnWritten(const Result<void>& result);
  void OnFinished(const Result<void>& result);
  void OnRead(const Result<void>& result);
  void OnCleared(const Result<void>& result);
  void Undo(int error);
  void End(int error, std::uint64_t bytes);

  const ProgramContext& context_;
  Workplace& place_;
  StoredChunks& stored_;
  std::shared_ptr<SuspendedFile> file_;  // null: there is none; shared with the disk's thread
  std::shared_ptr<SuspendedFile> next_;  // to be written
  Wish wish_ = Wish::kNone;
  bool begun_ = false;
  bool on_disk_ = false;                    // the disk works for it
  std::shared_ptr<FileMove> move_;          // of this chunk
  std::vector<std::uint64_t> left_, done_;  // chunks of the wish that are to go, and that have gone
};

}  // namespace tessera::mover
