#include "mover/program/save_moves.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

using Tier = Stored::Tier;

// ---- wishes ----

void SaveMoves::Save(UniqueFd file, const SuspendedHeader& of) {
  if (context_.gone) return;
  if (Busy()) return context_.Tell({.type = wire::MoverType::kSaved, .error = EBUSY});
  next_ = std::make_shared<SuspendedFile>(SuspendedFile::Begin(std::move(file), of));
  Want(Wish::kSave);
}

// What is away is known by now. False: it was done before.
bool SaveMoves::BeginSave() {
  // An earlier mover may have finished the file, and have given back a part of the slots.
  if (file_) LeaveSlots();
  if (const std::uint64_t saved = stored_.Count(Tier::kSaved); saved > 0) {
    const bool all = stored_.Parked() == saved;
    End(all ? 0 : EBUSY, all ? file_->Bytes() : 0);
    return false;
  }
  file_ = std::exchange(next_, nullptr);
  file_->Expect(stored_.Count(Tier::kParked));
  return true;
}

void SaveMoves::Return() {
  if (!Busy() && stored_.Count(Tier::kSaved) > 0) Want(Wish::kReturn);
}

void SaveMoves::Want(Wish wish) {
  if (Busy() && wish_ != Wish::kReturn) return;
  wish_ = wish;
  if (!context_.program.HasLine()) Undo(EPIPE);
}

void SaveMoves::GoOn(bool idle, bool named) {
  if (!Busy() || on_disk_) return;
  if (!begun_) {
    if (!named || (wish_ == Wish::kSave && !idle)) return;
    if (wish_ == Wish::kSave && !BeginSave()) return;
    begun_ = true;
    const Tier from = wish_ == Wish::kSave ? Tier::kParked : Tier::kSaved;
    for (const auto& [chunk, stored] : stored_) {
      if (stored.tier == from) left_.push_back(chunk);
    }
    std::ranges::reverse(left_);
  }
  // A chunk may have been dropped meanwhile.
  std::erase_if(left_, [&](std::uint64_t chunk) { return stored_.Find(chunk) == nullptr; });
  if (wish_ == Wish::kSave) return left_.empty() ? Finish() : SaveNext();
  left_.empty() ? Clear() : UnsaveNext();
}

void SaveMoves::TellLeft() {
  if (!context_.gone && wish_ != Wish::kReturn)
    context_.Tell({.type = wire::MoverType::kSaveLeft, .bytes = left_.size() * wire::kChunkBytes});
}

void SaveMoves::StartDisk(Disk::Work work, void (SaveMoves::*done)(const Result<void>&)) {
  on_disk_ = true;
  place_.disk->Start(std::move(work),
                     [this, done, self = context_.program.shared_from_this()](const Result<void>& result) {
                       on_disk_ = false;
                       (this->*done)(result);
                     });
}

// ---- to the file ----

void SaveMoves::SaveNext() {
  const std::uint64_t chunk = left_.back();
  Stored& stored = stored_.At(chunk);
  stored_.Put(stored, Tier::kSaving);
  move_ = std::make_shared<FileMove>(FileMove{.chunk = chunk, .slot = stored.slot});
  TellLeft();
  place_.pool.BeginRead(stored.slot);  // the chunk may be dropped, or be another line's soon
  StartDisk(
      [file = file_, chunk, key = place_.pool.EntryOf(stored.slot).key, &gpu = place_.gpu,
       &memory = place_.pool.MemoryOf(stored.slot)]() -> Result<void> {
        const auto bytes = gpu.BytesOf(memory);
        if (!bytes) return std::unexpected(bytes.error());
        return file->Append(chunk, key, *bytes);
      },
      &SaveMoves::OnWritten);
}

void SaveMoves::OnWritten(const Result<void>& result) {
  PassFault("mover.save.written");
  const auto move = std::exchange(move_, nullptr);
  place_.pool.EndRead(move->slot);
  Stored* stored = stored_.Find(move->chunk);
  if (stored != nullptr && stored->tier == Tier::kSaving) stored_.Put(*stored, Tier::kParked);
  if (!Busy()) return;  // its line has ended
  std::erase(left_, move->chunk);
  done_.push_back(move->chunk);
  if (!result) {
    std::fprintf(stderr, "tessera-mover: program %llu: %s\n", static_cast<unsigned long long>(context_.id),
                 result.error().Text().c_str());
    Undo(result.error().code);
  }
}

void SaveMoves::Finish() {
  StartDisk([file = file_] { return file->Finish(); }, &SaveMoves::OnFinished);
}

void SaveMoves::OnFinished(const Result<void>& result) {
  PassFault("mover.save.finished");
  if (!Busy()) return;
  if (!result) return Undo(result.error().code);
  LeaveSlots();
  PassFault("mover.save.left");
  End(0, file_->Bytes());
}

// What is in slots, parked, and in the finished file under the same key, is in the file only. The program has not held
// it since, or the file would have been emptied.
void SaveMoves::LeaveSlots() {
  for (auto& [chunk, stored] : stored_) {
    const auto place = stored.tier == Tier::kParked ? Find(place_.pool.EntryOf(stored.slot).key) : std::nullopt;
    if (!place) continue;
    place_.pool.GiveBack(stored.slot);
    stored.place = *place;
    stored_.Put(stored, Tier::kSaved);
  }
}

std::optional<Place> SaveMoves::Find(std::uint64_t key) const {
  if (!file_) return {};
  const auto found = std::ranges::find(file_->Table(), key, &SuspendedChunk::key);
  if (found == file_->Table().end()) return {};
  return static_cast<Place>(found - file_->Table().begin());
}

// ---- back ----

std::uint64_t SaveMoves::ToRead() const { return begun_ && wish_ != Wish::kSave ? left_.size() : 0; }

void SaveMoves::UnsaveNext() {
  const auto slot = place_.FreeFor(context_.domain) > 0 ? place_.pool.Take(context_.domain) : std::nullopt;
  if (!slot) return;
  const std::uint64_t chunk = left_.back();
  Stored& stored = stored_.At(chunk);
  stored_.Put(stored, Tier::kUnsaving);
  move_ = stored.move = std::make_shared<FileMove>(
      FileMove{.direction = Direction::kIn, .chunk = chunk, .slot = *slot, .place = stored.place});
  TellLeft();
  StartDisk(
      [file = file_, place = stored.place, &gpu = place_.gpu, &memory = place_.pool.MemoryOf(*slot)]() -> Result<void> {
        const auto bytes = gpu.BytesOf(memory);
        if (!bytes) return std::unexpected(bytes.error());
        return file->Read(file->Table()[place], *bytes);
      },
      &SaveMoves::OnRead);
}

void SaveMoves::OnRead(const Result<void>& result) {
  PassFault("mover.unsave.read");
  const auto move = std::exchange(move_, nullptr);
  std::erase(left_, move->chunk);
  if (move->dropped || !Busy()) return place_.pool.GiveBack(move->slot);
  Stored& stored = stored_.At(move->chunk);
  stored.move.reset();
  if (!result) {
    std::fprintf(stderr, "tessera-mover: program %llu: %s\n", static_cast<unsigned long long>(context_.id),
                 result.error().Text().c_str());
    place_.pool.GiveBack(move->slot);
    stored_.Put(stored, Tier::kSaved);
    return Undo(result.error().code);
  }
  stored.slot = move->slot;
  place_.pool.GiveUnder(file_->Table()[move->place].key, move->slot, context_.domain, context_.pid);
  stored_.Put(stored, Tier::kParked);
  done_.push_back(move->chunk);
}

void SaveMoves::Starve() {
  if (ToRead() > 0 && !on_disk_ && place_.FreeFor(context_.domain) == 0) Undo(ENOMEM);
}

// All of it is in slots, so the file is of no use any more, and must not be found by another mover: the program will
// change what was in it.
void SaveMoves::Clear() {
  if (!file_) return End(0, 0);
  StartDisk([file = file_] { return file->Clear(); }, &SaveMoves::OnCleared);
}

void SaveMoves::OnCleared(const Result<void>& result) {
  PassFault("mover.unsave.cleared");
  if (!Busy()) return;
  if (!result) return Undo(result.error().code);
  const std::uint64_t bytes = file_->Bytes();
  file_.reset();
  End(0, bytes);
}

// ---- ends ----

// What is parked stays so, and what is in the file.
void SaveMoves::Undo(int error) {
  if (wish_ == Wish::kSave) {
    if (begun_) file_.reset();
  } else {
    for (const std::uint64_t chunk : done_) {
      Stored* stored = stored_.Find(chunk);
      if (stored == nullptr || stored->tier != Tier::kParked) continue;
      place_.pool.GiveBack(stored->slot);
      stored_.Put(*stored, Tier::kSaved);
    }
  }
  End(error, 0);
}

void SaveMoves::End(int error, std::uint64_t bytes) {
  const Wish wish = std::exchange(wish_, Wish::kNone);
  begun_ = false;
  next_.reset();
  left_.clear();
  done_.clear();
  if (wish == Wish::kReturn && error != 0) stored_.not_back = EIO;
  if (context_.gone || wish == Wish::kReturn) return;
  context_.Tell({.type = wish == Wish::kSave ? wire::MoverType::kSaved : wire::MoverType::kUnsaved,
                 .error = error,
                 .bytes = bytes});
}

// The next mover, or this one on another line, finds by the keys what is in slots and what is in the file.
void SaveMoves::EndLine() {
  if (Busy()) End(EPIPE, 0);
  file_.reset();
  stored_.EraseIf([&](const Stored& stored) {
    if (stored.tier == Tier::kUnsaving) stored.move->dropped = true;
    return stored.tier == Tier::kSaved || stored.tier == Tier::kUnsaving;
  });
}

}  // namespace tessera::mover
