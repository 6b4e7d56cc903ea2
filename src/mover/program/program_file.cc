// What of a program goes on to the swap file, and comes back.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

using wire::LineMessage;
using wire::LineType;

std::uint64_t Program::Filing() const { return fd() < 0 || Silent() ? 0 : stored_.Count(Tier::kFiling); }

bool Program::Storing() const {
  const bool asked = active_ == Direction::kOut && Asked() > 0;
  const auto goes = [](const auto& batch) { return batch->direction == Direction::kOut; };
  return fd() >= 0 && !Silent() && (asked || std::ranges::any_of(batches_, goes));
}

bool Program::Filed() const {
  return stored_.Count(Tier::kFiling) + stored_.Count(Tier::kFile) + stored_.Count(Tier::kReading) > 0;
}

// ---- to the file ----

std::optional<std::uint64_t> Program::Oldest() const {
  std::optional<std::uint64_t> oldest;
  // Not of what comes back: it may be on its way already.
  if (!rests_ || fd() < 0 || Silent() || active_ == Direction::kIn || stored_.Count(Tier::kSlot) == 0) return oldest;
  for (const auto& [chunk, stored] : stored_) {
    if (stored.tier == Tier::kSlot) oldest = std::min(oldest.value_or(UINT64_MAX), stored.number);
  }
  return oldest;
}

bool Program::FileOldest() {
  const auto number = Oldest();
  const auto found = std::ranges::find_if(stored_, [&](const auto& each) { return each.second.number == number; });
  const auto place = place_.file->Take(pid_);
  if (!number || !place) return false;
  auto& [chunk, stored] = *found;
  stored_.Put(stored, Tier::kFiling);
  StartDisk(stored, std::make_shared<FileMove>(FileMove{.chunk = chunk, .slot = stored.slot, .place = *place}));
  return true;
}

void Program::StartDisk(Stored& stored, const std::shared_ptr<FileMove>& move) {
  stored.move = move;
  move->program = shared_from_this();
  ++on_disk_;
  place_.disk->Start(move, place_.pool.MemoryOf(move->slot));
}

// ---- back ----

// How many chunks have to come back: all of them before it runs, else what is to be loaded and is in no slot.
std::uint64_t Program::ToRead() const {
  if (fd() < 0 || file_error_ != 0) return 0;
  const std::uint64_t filed = stored_.Count(Tier::kFile);
  if (filed == 0 || settling_) return filed;
  const Task& task = tasks_[static_cast<int>(Direction::kIn)];
  if (active_ != Direction::kIn || task.error != 0) return 0;
  const std::uint64_t wanted = task.left + Asked(), ready = stored_.Count(Tier::kSlot) + stored_.Count(Tier::kReading);
  return std::min(filed, wanted - std::min(wanted, ready));
}

void Program::ReadSome() {
  for (std::uint64_t left = ToRead(); left > 0; --left) {
    // What is settled stays in its slot for as long as the program runs: not in the last one.
    const std::uint64_t free = settling_ ? place_.FreeFor(domain_) : place_.pool.FreeFor(domain_);
    const auto slot = free > 0 ? place_.pool.Take(domain_) : std::nullopt;
    if (!slot) return;
    auto& [chunk, stored] = *std::ranges::find_if(stored_, [](const auto& e) { return e.second.tier == Tier::kFile; });
    stored_.Put(stored, Tier::kReading);
    stored.slot = *slot;
    StartDisk(stored, std::make_shared<FileMove>(
                          FileMove{.direction = Direction::kIn, .chunk = chunk, .slot = *slot, .place = stored.place}));
  }
}

// Only then is the program asked to make its addresses valid.
void Program::GoOnSettling() {
  if (!settling_) return;
  if (lost_ == 0 && file_error_ == 0 && Filed()) return;
  settling_ = false;
  if (lost_ > 0 || file_error_ != 0) return TellSettled(lost_ > 0 ? ESTALE : file_error_);
  Say(LineType::kSettle, {});
  Expect({.type = LineType::kSettle});
}

// Nobody has a slot for what is to come back, nor will have one.
void Program::StarveReading() {
  if (ToRead() == 0 || stored_.Count(Tier::kReading) > 0) return;
  const bool stuck = settling_ ? place_.FreeFor(domain_) == 0 : place_.pool.FreeFor(domain_) == 0 && batches_.empty();
  if (stuck) file_error_ = ENOMEM;
}

// ---- what the disk did ----

void Program::OnDisk(const std::shared_ptr<FileMove>& move, const Result<void>& result) {
  const auto self = std::exchange(move->program, nullptr);
  --on_disk_;
  if (!result) {
    std::fprintf(stderr, "tessera-mover: program %llu: %s\n", static_cast<unsigned long long>(id_),
                 result.error().Text().c_str());
    if (move->direction == Direction::kOut) place_.file_full = result.error();
    if (move->direction == Direction::kIn) file_error_ = EIO;
  }
  if (fd() < 0) return OnDiskForNobody(*move);
  if (move->dropped) {
    place_.pool.GiveBack(move->slot);
    place_.file->GiveBack(move->place);
    return;
  }
  Stored& stored = stored_.At(move->chunk);
  const bool out = move->direction == Direction::kOut;
  if (result && (rests_ || !out)) return out ? SayFiled(move) : SayRead(move);
  // It stays where it is: what is written nobody needs, what cannot be read is in the file.
  stored.move.reset();
  stored_.Put(stored, out ? Tier::kSlot : Tier::kFile);
  out ? place_.file->GiveBack(move->place) : place_.pool.GiveBack(move->slot);
}

// What was read nobody was given; what was written the program has still.
void Program::OnDiskForNobody(FileMove& move) {
  if (move.direction == Direction::kIn || move.dropped) place_.pool.GiveBack(move.slot);
  if (move.direction == Direction::kOut || move.dropped) place_.file->GiveBack(move.place);
  if (gone_) Release();
}

// The line has ended. What is in the file is for whoever shows the key; what the program was asked of it may do yet.
void Program::LeaveFile() {
  for (const Question& question : questions_) {
    if (!question.move) continue;
    const FileMove& move = *question.move;
    move.dropped ? place_.file->GiveBack(move.place) : place_.file->Leave(move.place);
    if (!move.dropped) stored_.Erase(move.chunk);
  }
  stored_.EraseIf([&](std::uint64_t, const Stored& stored) {
    if (stored.tier == Tier::kFile) place_.file->Leave(stored.place);
    if (stored.tier == Tier::kReading) place_.file->Leave(stored.move->place);
    return stored.tier == Tier::kFile || stored.tier == Tier::kReading;
  });
}

// ---- the conversation ----

void Program::SayFiled(const std::shared_ptr<FileMove>& move) {
  LineMessage message = {.type = LineType::kFiled, .count = 1};
  message.chunk[0] = move->chunk;
  message.key[0] = place_.file->KeyOf(move->place);
  Send(message);
  PassFault("mover.filed.sent");
  Expect({.type = LineType::kFiled, .move = move});
}

Stored* Program::EndOf(const FileMove& move) {
  if (move.dropped) {
    place_.pool.GiveBack(move.slot);
    place_.file->GiveBack(move.place);
    return nullptr;
  }
  Stored& stored = stored_.At(move.chunk);
  stored.move.reset();
  return &stored;
}

Result<void> Program::OnReleased(const LineMessage& message) {
  const auto question = Answered(LineType::kFiled);
  if (!question) return std::unexpected(question.error());
  PassFault("mover.released.received");
  const FileMove& move = *question->move;
  Stored* stored = EndOf(move);
  if (stored == nullptr) return {};
  const bool named = message.count == 1 && message.chunk[0] == move.chunk;
  stored_.Put(*stored, named ? Tier::kFile : Tier::kSlot);
  stored->place = move.place;
  named ? place_.pool.GiveBack(move.slot) : place_.file->GiveBack(move.place);
  return {};
}

void Program::SayRead(const std::shared_ptr<FileMove>& move) {
  place_.pool.Give(move->slot, domain_, pid_);
  LineMessage message = {.type = LineType::kRead, .count = 1};
  message.chunk[0] = move->chunk;
  message.key[0] = place_.pool.KeyOf(move->slot);
  const int fd = place_.pool.MemoryOf(move->slot).fd.Get();
  Send(message, {&fd, 1});
  PassFault("mover.read.sent");
  Expect({.type = LineType::kRead, .move = move});
}

Result<void> Program::OnHeld(const LineMessage& message) {
  const auto question = Answered(LineType::kRead);
  if (!question) return std::unexpected(question.error());
  PassFault("mover.held.received");
  const FileMove& move = *question->move;
  Stored* stored = EndOf(move);
  if (stored == nullptr) return {};
  const bool named = message.count == 1 && message.chunk[0] == move.chunk;
  stored_.Put(*stored, named ? Tier::kSlot : Tier::kFile);
  if (named) {
    stored->number = place_.stored++;
    place_.file->GiveBack(move.place);
  } else {
    place_.pool.GiveBack(move.slot);
    file_error_ = EIO;
  }
  return {};
}

Result<void> Program::OnAdoptFiled(const LineMessage& message) {
  for (std::uint32_t i = 0; i < message.count; ++i) {
    if (stored_.Find(message.chunk[i]) != nullptr || UnderWay(Direction::kOut, message.chunk[i]) != nullptr)
      return Fail(EPROTO, "it has given a chunk already that is to be adopted");
    if (const auto place = place_.file != nullptr ? place_.file->Claim(message.key[i], pid_) : std::nullopt) {
      stored_.Add(message.chunk[i], {.tier = Tier::kFile, .number = place_.stored++, .place = *place});
    } else if (lost_++ == 0) {
      std::fprintf(stderr, "tessera-mover: program %llu: what it had in the swap file is lost\n",
                   static_cast<unsigned long long>(id_));
    }
  }
  return {};
}

}  // namespace tessera::mover
