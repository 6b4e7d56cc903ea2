#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "mover/line/line.h"
#include "mover/pool/pool_growth.h"
#include "mover/program/copy_moves.h"
#include "mover/program/file_moves.h"
#include "mover/program/park_moves.h"
#include "mover/program/questions.h"
#include "mover/program/relocations.h"
#include "mover/program/save_moves.h"
#include "mover/program/shown_chunks.h"
#include "mover/program/stored_chunks.h"
#include "mover/program/workplace.h"

namespace tessera::mover {

// One program as the mover knows it: its line, the moves that are under way, and what is stored for it. A program is
// not trusted: a message that it must not send closes its line. This object lives until the copies of the program's
// memory have ended, which may be after the daemon said that the program is gone. For the loop's thread.
class Program : public std::enable_shared_from_this<Program> {
 public:
  // `file`: the program's own file, if it has one.
  Program(Workplace& place, std::uint64_t id, pid_t pid, Domain domain, UniqueFd line,
          std::shared_ptr<SuspendedFile> file = {});

  int fd() const { return line_.fd(); }

  // The daemon's wish: kEvict, kLoad, kSettle, kPark, kRelocate, kSave or kUnsave.
  void Do(const wire::MoverMessage& message, UniqueFd fd);
  void Show(std::uint64_t chunks) { shown_.Show(chunks); }
  void Gone();

  // Handles the events that epoll reports for the line.
  void OnEvent(std::uint32_t events);
  void OnCopied(const std::shared_ptr<Batch>& batch);
  // The daemon keeps the slot with memory of this number, if the program leaves something in it, or does not, as
  // `error` says, an errno value.
  void OnKept(std::uint64_t number, int error) {
    if (!shown_.OnKept(number, error)) copies_.OnKept(number, error);
  }
  void OnDisk(const std::shared_ptr<FileMove>& move, const Result<void>& result);
  pid_t pid() const { return context_.pid; }
  // Memory that it left in place is on its way to host memory.
  bool Relocates() const { return !relocations_.Idle(); }
  bool HasLine() const { return line_.open(); }

  // Asks the program for as much as there is room for, and ends moves that are done.
  void GoOn();
  // Adds the chunks for which slots are needed that the program does not have.
  void AddDemand(Demand& demand) const;
  // There will be no more free slots than there are.
  void Starve();

  // The number (Stored::number) of the chunk that has been stored for longest, if it may go to the file.
  std::optional<std::uint64_t> Oldest() const { return Talks() ? files_.Oldest() : std::nullopt; }
  // Sends that chunk to the file. False: the file has no place.
  bool FileOldest() { return files_.FileOldest(); }
  // Chunks on their way to the file, and whether chunks are on their way to slots: others may wait for both.
  std::uint64_t Filing() const { return Talks() ? stored_.Count(Stored::Tier::kFiling) : 0; }
  bool Storing() const { return Talks() && copies_.Stores(); }
  bool Loads() const { return copies_.Loads(); }
  // Whether the program has to answer something.
  bool IsAsked() const { return !questions_.empty(); }

 private:
  void Evict(std::uint64_t units, std::uint64_t how);  // as MoverMessage::other
  void Settle();
  void Park();
  void Save(const wire::MoverMessage& message, UniqueFd file);
  void Move(Direction direction, std::uint64_t units, std::uint64_t holes);
  void OnReadable();
  Result<void> OnPacket(LinePacket packet);
  Result<void> OnDropped(const wire::LineMessage& message);
  Result<void> OnAdopt(const wire::LineMessage& message);
  bool IsGiven(const wire::LineMessage& message);
  void Return();
  void EndLine();
  void LeaveSlots();
  // Whether the line is open, and the program answers soon enough that others may wait for it.
  bool Talks() const {
    return line_.open() && !questions_.WaitsLongerThan(context_.place.patience / 10, context_.place.now);
  }

  ProgramContext context_;
  Line line_;
  Questions questions_;
  StoredChunks stored_;
  ShownChunks shown_;
  CopyMoves copies_;
  Relocations relocations_;
  FileMoves files_;
  ParkMoves park_;
  SaveMoves saves_;
  bool claimed_ = false;       // the program has named all chunks that it has in slots of an earlier mover
  bool told_ = false;          // that its driver does not import host memory
  bool answers_ = false;       // it has answered something, and so has named before what it has away
  std::uint64_t orphans_ = 0;  // chunks that it has in host memory of no pool
};

}  // namespace tessera::mover
