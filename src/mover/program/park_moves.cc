#include "mover/program/park_moves.h"

#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

using wire::LineMessage;
using wire::LineType;
using Tier = Stored::Tier;

namespace {

// Questions that the program may have before it, of kMostChunks chunks each: enough that it does not wait for the next.
constexpr std::size_t kMostParks = 4;

}  // namespace

void ParkMoves::Park() {
  if (!line_.open()) return End(0, EPIPE);
  if (state_ == State::kNone) state_ = State::kWaiting;
}

void ParkMoves::GoOn(bool copies, bool files) {
  if (returning_ && !Parks() && !copies) {
    // What could not come back stays parked until the daemon's next wish.
    while (stored_.Count(Tier::kParked) > 0 && stored_.not_back == 0 && questions_.Parks() < kMostParks) {
      const auto chunks = Next(Tier::kParked);
      if (chunks.empty() && !next_) stored_.not_back = EOPNOTSUPP;  // what is left lies in a GPU's memory
      Ask(LineType::kRead, chunks);
    }
    returning_ = stored_.not_back == 0 && stored_.Parked() > 0;
  }
  if (state_ == State::kWaiting && !copies && !files && !returning_ && stored_.Count(Tier::kReturning) == 0) {
    state_ = State::kReleasing;
    next_ = 0;
  }
  if (state_ != State::kReleasing) return;
  while (next_ && questions_.Parks() < kMostParks) Ask(LineType::kFiled, Next(Tier::kSlot));
  if (questions_.Parks() > 0) return;
  state_ = State::kAsking;
  line_.Say(LineType::kPark, {});
  questions_.Expect({.type = LineType::kPark}, place_.now);
}

// The next few chunks of this tier, from the first name on if all were looked at. May be none.
std::vector<std::uint64_t> ParkMoves::Next(Tier tier) {
  std::vector<std::uint64_t> chunks;
  auto each = stored_.From(next_.value_or(0));
  for (; each != stored_.end() && chunks.size() < wire::kMostChunks; ++each) {
    if (each->second.tier != tier) continue;
    // A slot that no mover finds is held, and a GPU's memory cannot be.
    const bool findable = place_.pool.EntryOf(each->second.slot).key != 0;
    const bool held = tier == Tier::kSlot || !place_.pool.MemoryOf(each->second.slot).transit;
    if (findable && held) chunks.push_back(each->first);
  }
  next_ = each == stored_.end() ? std::nullopt : std::optional(each->first);
  return chunks;
}

// A slot is marked as parked before the program can have heard that it is to give it up, and until it has said that it
// holds it again.
void ParkMoves::Ask(LineType type, std::vector<std::uint64_t> chunks) {
  if (chunks.empty()) return;
  const bool parks = type == LineType::kFiled;
  LineMessage message = {.type = type};
  std::vector<int> fds;
  for (const std::uint64_t chunk : chunks) {
    Stored& stored = stored_.At(chunk);
    stored_.Put(stored, parks ? Tier::kParking : Tier::kReturning);
    place_.pool.Park(stored.slot, true);
    message.chunk[message.count] = chunk;
    message.key[message.count++] = place_.pool.EntryOf(stored.slot).key;
    if (!parks) fds.push_back(place_.pool.MemoryOf(stored.slot).fd.Get());
  }
  line_.Send(message, fds);
  PassFault(parks ? "mover.park.sent" : "mover.return.sent");
  questions_.Expect({.type = type, .chunks = std::move(chunks)}, place_.now);
}

Result<void> ParkMoves::OnAnswer(const LineMessage& message) {
  const LineType type = message.type == LineType::kReleased ? LineType::kFiled
                        : message.type == LineType::kHeld   ? LineType::kRead
                                                            : LineType::kPark;
  const auto question = questions_.Answered(type, place_.now);
  if (!question) return std::unexpected(question.error());
  if (type == LineType::kFiled) OnReleased(*question, message);
  if (type == LineType::kRead) OnHeld(*question, message);
  if (type == LineType::kPark) End(message.room, message.room == 0 ? 0 : EBUSY);
  return {};
}

// A chunk may have been dropped since the question, and its name be another chunk's.
void ParkMoves::OnReleased(const Question& question, const LineMessage& message) {
  PassFault("mover.park.answered");
  for (const std::uint64_t chunk : question.chunks) {
    Stored* stored = stored_.Find(chunk);
    if (stored == nullptr || stored->tier != Tier::kParking) continue;
    const bool released = Names(message, chunk);
    if (!released) place_.pool.Park(stored->slot, false);
    stored_.Put(*stored, released ? Tier::kParked : Tier::kSlot);
  }
}

void ParkMoves::OnHeld(const Question& question, const LineMessage& message) {
  PassFault("mover.return.answered");
  for (const std::uint64_t chunk : question.chunks) {
    Stored* stored = stored_.Find(chunk);
    if (stored == nullptr || stored->tier != Tier::kReturning) continue;
    const bool held = Names(message, chunk);
    if (held) {
      place_.pool.Park(stored->slot, false);
      stored->number = place_.stored++;
    } else {
      if (IsRefusal(message)) stored_.imports = false;
      stored_.not_back = stored_.imports ? EIO : EOPNOTSUPP;
    }
    stored_.Put(*stored, held ? Tier::kSlot : Tier::kParked);
  }
}

void ParkMoves::End(std::uint64_t held_chunks, int error) {
  state_ = State::kNone;
  if (context_.gone) return;
  context_.Tell({.type = wire::MoverType::kParked,
                 .error = error,
                 .bytes = held_chunks * wire::kChunkBytes,
                 .other = stored_.Count(Tier::kFile) * wire::kChunkBytes});
}

void ParkMoves::EndLine() {
  returning_ = false;
  if (state_ != State::kNone) End(0, EPIPE);
}

}  // namespace tessera::mover
