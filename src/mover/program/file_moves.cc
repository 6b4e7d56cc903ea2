#include "mover/program/file_moves.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

using wire::LineMessage;
using wire::LineType;
using Tier = Stored::Tier;

FileMoves::FileMoves(const ProgramContext& context, Line& line, Questions& questions, StoredChunks& stored,
                     const CopyMoves& copies)
    : context_(context), place_(context.place), line_(line), questions_(questions), stored_(stored), copies_(copies) {}

void FileMoves::Wish(bool stopped) {
  stopped_ = stopped;
  stored_.not_back = 0;
}

// ---- to the file ----

std::optional<std::uint64_t> FileMoves::Oldest() const {
  std::optional<std::uint64_t> oldest;
  // Not of a program that loads: the chunk may be on its way to the GPU already.
  if (!stopped_ || copies_.Loads() || stored_.Count(Tier::kSlot) == 0) return oldest;
  for (const auto& [chunk, stored] : stored_) {
    if (stored.tier == Tier::kSlot) oldest = std::min(oldest.value_or(UINT64_MAX), stored.number);
  }
  return oldest;
}

bool FileMoves::FileOldest() {
  const auto number = Oldest();
  const auto found = std::ranges::find_if(stored_, [&](const auto& each) { return each.second.number == number; });
  const auto place = place_.file->Take(context_.pid);
  if (!number || !place) return false;
  auto& [chunk, stored] = *found;
  stored_.Put(stored, Tier::kFiling);
  StartDisk(stored, std::make_shared<FileMove>(FileMove{.chunk = chunk, .slot = stored.slot, .place = *place}));
  return true;
}

void FileMoves::StartDisk(Stored& stored, const std::shared_ptr<FileMove>& move) {
  stored.move = move;
  ++on_disk_;
  const bool out = move->direction == Direction::kOut;
  const auto work = [out, place = move->place, &file = *place_.file, &gpu = place_.gpu,
                     &memory = place_.pool.MemoryOf(move->slot)]() -> Result<void> {
    const auto bytes = gpu.BytesOf(memory);
    if (!bytes) return std::unexpected(bytes.error());
    Result<void> done = out ? file.Write(place, *bytes) : file.Read(place, *bytes);
    if (done) PassFault(out ? "mover.file.written" : "mover.file.read");
    return done;
  };
  place_.disk->Start(work, [self = context_.program.shared_from_this(), move](const Result<void>& result) {
    self->OnDisk(move, result);
  });
}

void FileMoves::SayFiled(const std::shared_ptr<FileMove>& move) {
  LineMessage message = {.type = LineType::kFiled, .count = 1};
  message.chunk[0] = move->chunk;
  message.key[0] = place_.file->KeyOf(move->place);
  line_.Send(message);
  PassFault("mover.filed.sent");
  questions_.Expect({.type = LineType::kFiled, .move = move}, place_.now);
}

void FileMoves::OnReleased(const FileMove& move, const LineMessage& message) {
  PassFault("mover.released.received");
  Stored* stored = EndOf(move);
  if (stored == nullptr) return;
  const bool released = message.count == 1 && message.chunk[0] == move.chunk;
  stored_.Put(*stored, released ? Tier::kFile : Tier::kSlot);
  stored->place = move.place;
  released ? place_.pool.GiveBack(move.slot) : place_.file->GiveBack(move.place);
}

// ---- back ----

std::uint64_t FileMoves::ToRead() const {
  if (!line_.open() || stored_.not_back != 0) return 0;
  const std::uint64_t filed = stored_.Count(Tier::kFile);
  if (filed == 0 || settling_) return filed;
  const std::uint64_t wanted = copies_.ToLoad();
  const std::uint64_t ready = stored_.Count(Tier::kSlot) + stored_.Count(Tier::kReading) + stored_.Parked();
  return std::min(filed, wanted - std::min(wanted, ready));
}

std::uint64_t FileMoves::Loadable() const {
  if (!stored_.AnyFiled() && stored_.lost == 0) return UINT64_MAX;
  // The program chooses among all that is in slots, so none of that may be what the disk works at.
  return stored_.Count(Tier::kFiling) > 0 ? 0 : stored_.Count(Tier::kSlot) + stored_.Parked();
}

int FileMoves::error() const { return stored_.lost > 0 && stored_.Empty() ? ESTALE : stored_.not_back; }

void FileMoves::GoOn() {
  for (std::uint64_t left = ToRead(); left > 0; --left) {
    // A settled chunk stays in its slot for as long as the program runs: it must not have the last one.
    const std::uint64_t free = settling_ ? place_.FreeFor(context_.domain) : place_.pool.FreeFor(context_.domain);
    const auto slot = free > 0 ? place_.pool.Take(context_.domain) : std::nullopt;
    if (!slot) break;
    auto& [chunk, stored] = *std::ranges::find_if(stored_, [](const auto& e) { return e.second.tier == Tier::kFile; });
    stored_.Put(stored, Tier::kReading);
    stored.slot = *slot;
    StartDisk(stored, std::make_shared<FileMove>(
                          FileMove{.direction = Direction::kIn, .chunk = chunk, .slot = *slot, .place = stored.place}));
  }
  if (!settling_) return;
  int failed = stored_.lost > 0 ? ESTALE : stored_.not_back;
  if (failed == 0 && stored_.AnyFiled()) return;
  if (failed == 0 && stored_.Parked() > 0) {
    if (stored_.imports) return;
    failed = EOPNOTSUPP;
  }
  settling_ = false;
  if (failed != 0) return TellSettled(failed);
  line_.Say(LineType::kSettle, {});
  questions_.Expect({.type = LineType::kSettle}, place_.now);
}

void FileMoves::Starve() {
  if (ToRead() == 0 || stored_.Count(Tier::kReading) > 0) return;
  if (stored_.Parked() > 0 && (!settling_ || stored_.imports)) return;  // what is parked moves first
  const bool stuck = settling_ ? place_.FreeFor(context_.domain) == 0
                               : place_.pool.FreeFor(context_.domain) == 0 && copies_.NothingUnderWay();
  if (stuck) stored_.not_back = ENOMEM;
}

void FileMoves::SayRead(const std::shared_ptr<FileMove>& move) {
  place_.pool.Give(move->slot, context_.domain, context_.pid);
  const bool away = !stored_.imports;
  if (away) place_.pool.Park(move->slot, true);
  LineMessage message = {.type = away ? LineType::kReadAway : LineType::kRead, .count = 1};
  message.chunk[0] = move->chunk;
  message.key[0] = place_.pool.EntryOf(move->slot).key;
  const int fd = place_.pool.MemoryOf(move->slot).fd.Get();
  line_.Send(message, {&fd, away ? 0u : 1u});
  PassFault("mover.read.sent");
  questions_.Expect({.type = message.type, .move = move}, place_.now);
}

void FileMoves::OnHeld(const FileMove& move, const LineMessage& message, bool away) {
  PassFault("mover.held.received");
  Stored* stored = EndOf(move);
  if (stored == nullptr) return;
  const bool held = message.count == 1 && message.chunk[0] == move.chunk;
  stored_.Put(*stored, !held ? Tier::kFile : away ? Tier::kParked : Tier::kSlot);
  if (held) {
    stored->number = place_.stored++;
    place_.file->GiveBack(move.place);
  } else {
    place_.pool.GiveBack(move.slot);
    // The chunk is read once more if the program does not import it, and is parked then.
    const bool refuses = !away && IsRefusal(message);
    stored_.imports &= !refuses;
    if (!refuses) stored_.not_back = EIO;
  }
}

// What is in a slot as well as in the program's own file is in the slot: the file may be older.
void FileMoves::AdoptAway(std::uint64_t chunk, std::uint64_t key, const SaveMoves& saves) {
  if (const auto place = place_.file != nullptr ? place_.file->Claim(key, context_.pid) : std::nullopt) {
    stored_.Add(chunk, {.tier = Tier::kFile, .number = place_.stored++, .place = *place});
  } else if (const auto slot = place_.claims.Claim(key, context_.domain, context_.pid)) {
    place_.pool.Park(*slot, true);
    stored_.Add(chunk, {.tier = Tier::kParked, .number = place_.stored++, .slot = *slot});
  } else if (const auto saved = saves.Find(key)) {
    stored_.Add(chunk, {.tier = Tier::kSaved, .number = place_.stored++, .place = *saved});
  } else if (stored_.lost++ == 0) {
    std::fprintf(stderr, "tessera-mover: program %llu: what it had in a file, or had parked, is lost\n",
                 static_cast<unsigned long long>(context_.id));
  }
}

// ---- both ways ----

void FileMoves::GiveBackBoth(const FileMove& move) {
  place_.pool.GiveBack(move.slot);
  place_.file->GiveBack(move.place);
}

void FileMoves::OnDisk(const std::shared_ptr<FileMove>& move, const Result<void>& result) {
  const bool out = move->direction == Direction::kOut;
  --on_disk_;
  if (!result) {
    std::fprintf(stderr, "tessera-mover: program %llu: %s\n", static_cast<unsigned long long>(context_.id),
                 result.error().Text().c_str());
    if (out) place_.file_full = result.error();
    if (!out) stored_.not_back = EIO;
  }
  if (move->dropped) return GiveBackBoth(*move);
  // Without a line: the program was not given what was read, and has still what was written.
  if (!line_.open()) return out ? place_.file->GiveBack(move->place) : place_.pool.GiveBack(move->slot);
  if (result && (stopped_ || !out)) return out ? SayFiled(move) : SayRead(move);
  // The chunk stays where it is.
  Stored& stored = stored_.At(move->chunk);
  stored.move.reset();
  stored_.Put(stored, out ? Tier::kSlot : Tier::kFile);
  out ? place_.file->GiveBack(move->place) : place_.pool.GiveBack(move->slot);
}

Result<void> FileMoves::OnAnswer(const LineMessage& message) {
  const bool released = message.type == LineType::kReleased, held = message.type == LineType::kHeld;
  const bool away = questions_.NextIs(LineType::kReadAway);
  const auto question = questions_.Answered(released       ? LineType::kFiled
                                            : held && away ? LineType::kReadAway
                                            : held         ? LineType::kRead
                                                           : LineType::kSettle,
                                            place_.now);
  if (!question) return std::unexpected(question.error());
  if (released) OnReleased(*question->move, message);
  if (held) OnHeld(*question->move, message, away);
  if (!released && !held) TellSettled(message.error == 0 ? 0 : ErrorOf(message));
  return {};
}

// The chunk of a move that is over; null if it was dropped meanwhile.
Stored* FileMoves::EndOf(const FileMove& move) {
  if (move.dropped) {
    GiveBackBoth(move);
    return nullptr;
  }
  Stored& stored = stored_.At(move.chunk);
  stored.move.reset();
  return &stored;
}

// Memory in the file can be claimed with its key. The program may still do what it was asked, so the slots of those
// moves are held and their places are left, too.
void FileMoves::EndLine() {
  for (const Question& question : questions_) {
    if (question.type == LineType::kSettle) TellSettled(EPIPE);
    if (!question.move) continue;
    const FileMove& move = *question.move;
    stored_.held.push_back(move.slot);
    move.dropped ? place_.file->GiveBack(move.place) : place_.file->Leave(move.place);
    if (!move.dropped) stored_.Erase(move.chunk);
  }
  if (std::exchange(settling_, false)) TellSettled(EPIPE);
  stored_.EraseIf([&](const Stored& stored) {
    if (stored.tier == Tier::kFile) place_.file->Leave(stored.place);
    if (stored.tier == Tier::kReading) place_.file->Leave(stored.move->place);
    return stored.tier == Tier::kFile || stored.tier == Tier::kReading;
  });
}

// ---- settling ----

void FileMoves::Settle() {
  if (!line_.open()) return TellSettled(EPIPE);
  Wish(false);
  settling_ = true;
  GoOn();
}

void FileMoves::TellSettled(int error) {
  if (!context_.gone) context_.Tell({.type = wire::MoverType::kSettled, .error = error});
}

}  // namespace tessera::mover
