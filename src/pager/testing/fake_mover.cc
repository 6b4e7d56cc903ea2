#include "pager/testing/fake_mover.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

namespace tessera::pager {

using wire::kChunkBytes;
using wire::LineMessage;
using wire::LineType;

namespace {

LineMessage Named(LineType type, std::span<const std::uint64_t> chunks) {
  LineMessage message{.type = type, .count = static_cast<std::uint32_t>(chunks.size())};
  std::ranges::copy(chunks, message.chunk);
  return message;
}

std::int64_t BytesOfFirst(const std::vector<std::uint32_t>& units, std::size_t count) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<std::int64_t>(units[i] * wire::kUnitBytes);
  return sum;
}

bool Names(const std::vector<std::uint64_t>& chunks, std::uint64_t chunk) {
  return std::ranges::count(chunks, chunk) > 0;
}

}  // namespace

void FakeMover::Hear(LineAgent::Answer& answer) {
  const std::span chunks(answer.message.chunk, answer.message.count);
  if (answer.fds.size() != DescriptorsOf(answer.message)) complaints_.push_back("other descriptors than it says");
  switch (answer.message.type) {
    case LineType::kDropped:
      for (const std::uint64_t chunk : chunks) {
        if (!stored_.contains(chunk) && !filed_.contains(chunk) && !parked_.contains(chunk))
          complaints_.push_back("it dropped a chunk that is not stored");
        if (auto gone = filed_.extract(chunk)) file_.erase(gone.mapped());
        if (auto gone = parked_.extract(chunk)) slots_.erase(gone.mapped());
        const bool loading = std::ranges::any_of(wants_, [&](const auto& want) { return Names(want.chunks, chunk); });
        if (loading) complaints_.push_back("it dropped a chunk that it wants");
        if (auto gone = stored_.extract(chunk)) driver_.DropForMover(gone.mapped());
      }
      break;
    case LineType::kOffer: {
      Offered offered;
      const auto pieces = PiecesIn(answer);
      for (std::uint32_t i = 0; i < chunks.size(); ++i) {
        if (stored_.contains(chunks[i]) || parked_.contains(chunks[i]))
          complaints_.push_back("it offered a chunk that is stored");
        if (answer.message.units[i] == 0) complaints_.push_back("it offered nothing of a chunk");
        offered.chunks.push_back(chunks[i]);
        offered.taken.push_back(TakenBy(answer.message, i));
        FakeDriver::Words& words = offered.words.emplace_back();
        for (const Piece& piece : pieces[i]) {
          for (const auto& [offset, word] : driver_.WordsOf(piece.fd)) {
            const std::uint64_t at = piece.begin + offset;
            if (answer.message.units[i] >> (at / wire::kUnitBytes) & 1) words[at] = word;
          }
        }
      }
      if (!offered.chunks.empty()) offers_.push_back(std::move(offered));
      break;
    }
    case LineType::kWant: {
      Wanted wanted{.chunks = {chunks.begin(), chunks.end()}, .units = {}, .pieces = PiecesIn(answer), .taken = {}};
      for (std::uint32_t i = 0; i < chunks.size(); ++i) {
        if (!stored_.contains(chunks[i]) && !parked_.contains(chunks[i]))
          complaints_.push_back("it wants a chunk that is not stored");
        wanted.units.push_back(answer.message.units[i]);
        came_in_ += PiecesOf(answer.message, i);
        came_sparse_ += IsWhole(answer.message, i) ? 0 : 1;
        wanted.taken.push_back(TakenBy(answer.message, i));
      }
      if (!chunks.empty()) wants_.push_back(std::move(wanted));
      break;
    }
    case LineType::kAdopt: {
      LineMessage adopted = Named(LineType::kAdopted, chunks);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        if (stored_.contains(chunks[i])) complaints_.push_back("it gave a chunk twice");
        const auto slot = slots_.find(answer.message.key[i]);
        if (slot == slots_.end()) continue;
        stored_.emplace(chunks[i], driver_.ImportForMover(slot->second));
        adopted.key[i] = keys_[chunks[i]] = slot->first;
      }
      std::vector<LineAgent::Answer> more;
      if (chunks.empty()) break;  // that was all
      if (!agent_.On(adopted, {}, &more)) complaints_.push_back("it did not ask for what was adopted");
      for (LineAgent::Answer& each : more) Hear(each);
      break;
    }
    case LineType::kAdoptFiled:
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const std::uint64_t key = answer.message.key[i];
        if (!file_.contains(key) && !slots_.contains(key)) complaints_.push_back("it knows a wrong key");
        (file_.contains(key) ? filed_ : parked_).emplace(chunks[i], key);
      }
      break;
    default:
      break;
  }
}

// The memory that came for each chunk.
std::vector<std::vector<FakeMover::Piece>> FakeMover::PiecesIn(LineAgent::Answer& answer) {
  std::vector<std::vector<Piece>> pieces(answer.message.count);
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < answer.message.count; ++i) {
    if (IsWhole(answer.message, i)) {
      pieces[i].push_back({std::move(answer.fds.at(next++)), 0, kChunkBytes});
      continue;
    }
    const wire::Units units = answer.message.units[i], begins = answer.message.begins[i];
    if (!wire::ArePieces(units, begins)) complaints_.push_back("its pieces are no parts of what it names");
    wire::ForEachPiece(units, begins, [&](std::uint32_t first, std::uint32_t count) {
      pieces[i].push_back({std::move(answer.fds.at(next++)), first * wire::kUnitBytes, count * wire::kUnitBytes});
    });
  }
  return pieces;
}

// A descriptor of the same memory, for the program.
UniqueFd FakeMover::Keep(std::uint64_t key, UniqueFd fd) {
  UniqueFd given(fcntl(fd.Get(), F_DUPFD_CLOEXEC, 0));
  slots_.insert_or_assign(key, std::move(fd));
  return given;
}

bool FakeMover::File(std::uint64_t chunk) {
  LineMessage message = Named(LineType::kFiled, {&chunk, 1});
  message.key[0] = next_key_++;
  if (Say(message, {}, LineType::kReleased).count == 0) return false;
  const auto stored = stored_.find(chunk);
  file_.emplace(message.key[0], driver_.WordsOf(stored->second));
  filed_.emplace(chunk, message.key[0]);
  driver_.DropForMover(stored->second);
  stored_.erase(stored);
  return true;
}

bool FakeMover::ReadBack(std::uint64_t chunk) {
  const auto filed = filed_.find(chunk);
  std::vector<UniqueFd> fds(1);
  const Driver::Handle handle = driver_.MakeForMover(
      kChunkBytes, true, filed == filed_.end() ? FakeDriver::Words{} : file_.at(filed->second), &fds[0]);
  LineMessage read = Named(LineType::kRead, {&chunk, 1});
  read.key[0] = next_key_++;
  fds[0] = Keep(read.key[0], std::move(fds[0]));
  if (Say(read, std::move(fds), LineType::kHeld).count == 0) {
    driver_.DropForMover(handle);
    return false;
  }
  stored_.emplace(chunk, handle);
  keys_[chunk] = read.key[0];
  file_.erase(filed->second);
  filed_.erase(filed);
  return true;
}

bool FakeMover::ReadAway(std::uint64_t chunk) {
  const auto filed = filed_.find(chunk);
  if (filed == filed_.end()) return false;
  LineMessage read = Named(LineType::kReadAway, {&chunk, 1});
  read.key[0] = next_key_++;
  if (Say(read, {}, LineType::kHeld).count == 0) return false;
  UniqueFd fd;
  driver_.DropForMover(driver_.MakeForMover(kChunkBytes, true, file_.at(filed->second), &fd));
  slots_.insert_or_assign(read.key[0], std::move(fd));
  parked_.emplace(chunk, read.key[0]);
  file_.erase(filed->second);
  filed_.erase(filed);
  return true;
}

bool FakeMover::Park(std::uint64_t chunk) {
  LineMessage message = Named(LineType::kFiled, {&chunk, 1});
  message.key[0] = keys_[chunk];
  if (Say(message, {}, LineType::kReleased).count == 0) return false;
  parked_.emplace(chunk, keys_.at(chunk));
  const auto stored = stored_.extract(chunk);
  driver_.DropForMover(stored.mapped());  // the slot keeps the memory
  return true;
}

bool FakeMover::Unpark(std::uint64_t chunk) {
  LineMessage read = Named(LineType::kRead, {&chunk, 1});
  read.key[0] = keys_[chunk] = parked_.at(chunk);
  std::vector<UniqueFd> fds(1);
  fds[0].Reset(fcntl(slots_.at(read.key[0]).Get(), F_DUPFD_CLOEXEC, 0));
  if (Say(read, std::move(fds), LineType::kHeld).count == 0) return false;
  stored_.emplace(chunk, driver_.ImportForMover(slots_.at(read.key[0])));
  parked_.erase(chunk);
  return true;
}

LineMessage FakeMover::Say(const LineMessage& message, std::vector<UniqueFd> fds, LineType wanted) {
  std::vector<LineAgent::Answer> answers;
  if (!agent_.On(message, fds, &answers)) complaints_.push_back("it took a right message for a wrong one");
  LineMessage found{};
  for (LineAgent::Answer& answer : answers) {
    Hear(answer);
    if (answer.message.type == wanted) found = answer.message;
  }
  if (found.type != wanted) complaints_.push_back("it did not answer");
  return found;
}

std::uint32_t FakeMover::Ask(LineType type, std::uint32_t count, std::uint32_t room, std::uint32_t holes) {
  if (type != LineType::kLoad) return Say({.type = type, .count = count}, {}, LineType::kOffer).count;
  return Say({.type = type, .count = count, .room = room, .holes = holes}, {}, LineType::kWant).count;
}

LineMessage FakeMover::FinishOut(std::uint32_t most) {
  const Offered offered = std::move(offers_.front());
  offers_.erase(offers_.begin());
  const std::size_t copied = std::min<std::size_t>(most, offered.chunks.size());
  const std::span chunks(offered.chunks);
  if (copied < chunks.size()) {
    std::vector<LineAgent::Answer> answers;
    if (!agent_.On(Named(LineType::kKeep, chunks.subspan(copied)), {}, &answers))
      complaints_.push_back("it will not keep what it offered");
    for (LineAgent::Answer& answer : answers) Hear(answer);
  }
  if (copied == 0) return {};
  std::vector<UniqueFd> fds(copied);
  std::vector<Driver::Handle> handles;
  for (std::size_t i = 0; i < copied; ++i)
    handles.push_back(driver_.MakeForMover(kChunkBytes, true, offered.words[i], &fds[i]));
  // A name may be dropped in the same breath: it is stored first.
  LineMessage stored = Named(away_ ? LineType::kStoredAway : LineType::kStored, chunks.first(copied));
  for (std::size_t i = 0; i < copied; ++i) {
    stored.key[i] = next_key_++;
    fds[i] = Keep(stored.key[i], std::move(fds[i]));
  }
  if (away_) fds.clear();
  const LineMessage freed = Say(stored, std::move(fds), LineType::kFreed);
  for (std::size_t i = 0; i < copied; ++i) {
    if (freed.error != 0) {
      driver_.DropForMover(handles[i]);
    } else if (away_) {
      driver_.DropForMover(handles[i]);  // the slot keeps the memory
      parked_.emplace(chunks[i], stored.key[i]);
    } else {
      stored_.emplace(chunks[i], handles[i]);
      keys_[chunks[i]] = stored.key[i];
    }
  }
  if (freed.error == 0) room_.Moved(-BytesOfFirst(offered.taken, copied));
  return freed;
}

LineMessage FakeMover::FinishIn(std::uint32_t most) {
  const Wanted wanted = std::move(wants_.front());
  wants_.erase(wants_.begin());
  const std::size_t copied = std::min<std::size_t>(most, wanted.chunks.size());
  const std::span chunks(wanted.chunks);
  if (copied < chunks.size()) {
    std::vector<LineAgent::Answer> answers;
    if (!agent_.On(Named(LineType::kStay, chunks.subspan(copied)), {}, &answers))
      complaints_.push_back("it will not leave out what it wanted");
    for (LineAgent::Answer& answer : answers) Hear(answer);
  }
  if (copied == 0) return {};
  for (std::size_t i = 0; i < copied; ++i) {
    const auto parked = parked_.find(chunks[i]);
    const FakeDriver::Words stored =
        parked == parked_.end() ? driver_.WordsOf(stored_.at(chunks[i])) : driver_.WordsOf(slots_.at(parked->second));
    for (const Piece& piece : wanted.pieces[i]) {
      FakeDriver::Words words;
      for (const auto& [at, word] : stored) {
        if (at >= piece.begin && at - piece.begin < piece.bytes && (wanted.units[i] >> (at / wire::kUnitBytes) & 1))
          words[at - piece.begin] = word;
      }
      driver_.SetWords(piece.fd, words);
    }
  }
  const LineMessage taken = Say(Named(LineType::kLoaded, chunks.first(copied)), {}, LineType::kTaken);
  for (std::size_t i = 0; i < copied; ++i) {
    if (taken.error != 0) continue;
    if (auto gone = stored_.extract(chunks[i])) driver_.DropForMover(gone.mapped());
    if (auto gone = parked_.extract(chunks[i])) slots_.erase(gone.mapped());
  }
  if (taken.error == 0) room_.Moved(BytesOfFirst(wanted.taken, copied));
  return taken;
}

std::int32_t FakeMover::Settle() { return Say({.type = LineType::kSettle}, {}, LineType::kSettled).error; }

std::uint32_t FakeMover::Evict(std::uint32_t count, LineType type) {
  if (Ask(type, count) == 0) return 0;
  const LineMessage freed = FinishOut();
  return freed.error == 0 ? freed.count : 0;
}

std::uint32_t FakeMover::Load(std::uint32_t count, std::uint32_t room, std::uint32_t holes) {
  if (Ask(LineType::kLoad, count, room, holes) == 0) return 0;
  const LineMessage taken = FinishIn();
  return taken.error == 0 ? taken.count : 0;
}

std::uint32_t FakeMover::Squeeze(std::uint32_t count) {
  const std::uint32_t out = Evict(count, LineType::kSqueeze);
  return out == 0 ? 0 : Load(out);
}

void FakeMover::HearDropped() {
  std::vector<LineAgent::Answer> answers;
  agent_.TakeDropped(&answers);
  for (LineAgent::Answer& answer : answers) Hear(answer);
}

void FakeMover::Forget() {
  for (const auto& [chunk, handle] : stored_) driver_.DropForMover(handle);
  stored_.clear();
  filed_.clear();
  parked_.clear();
  offers_.clear();
  wants_.clear();
}

void FakeMover::Restart() {
  Forget();
  agent_.Lost();
  std::vector<LineAgent::Answer> answers;
  agent_.Adopt(&answers);
  for (LineAgent::Answer& answer : answers) Hear(answer);
}

}  // namespace tessera::pager
