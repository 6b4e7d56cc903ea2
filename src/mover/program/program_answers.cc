// What a program says, and what must be true of it.
#include <algorithm>
#include <cerrno>

#include "base/fault.h"
#include "cuda/cuda_abi.h"
#include "mover/program/program.h"

namespace tessera::mover {

using wire::LineMessage;
using wire::LineType;

namespace {

std::unexpected<Error> Wrong(const char* what) { return Fail(EPROTO, what); }

std::span<const std::uint64_t> ChunksOf(const LineMessage& message) { return {message.chunk, message.count}; }

bool Names(const LineMessage& message, std::uint64_t chunk) {
  return std::ranges::find(ChunksOf(message), chunk) != ChunksOf(message).end();
}

bool NamesOneTwice(const LineMessage& message) {
  std::vector<std::uint64_t> chunks(message.chunk, message.chunk + message.count);
  std::ranges::sort(chunks);
  return std::ranges::adjacent_find(chunks) != chunks.end();
}

// An answer may leave chunks of the question out, which are then as they were, but names no others.
bool NamesOthers(const LineMessage& message, const Batch& batch) {
  return !std::ranges::all_of(ChunksOf(message), [&](std::uint64_t chunk) {
    return std::ranges::find(batch.entries, chunk, &Batch::Entry::chunk) != batch.entries.end();
  });
}

// The errno value of what a program's driver said.
int ErrorOf(const LineMessage& message) { return message.error == cuda::CUDA_ERROR_OUT_OF_MEMORY ? ENOMEM : EIO; }

}  // namespace

Result<void> Program::OnPacket(Packet packet) {
  const LineMessage& message = packet.message;
  if (NamesOneTwice(message)) return Wrong("it named a chunk twice in a message");
  switch (message.type) {
    case LineType::kOffer:
      return OnOffer(packet);
    case LineType::kWant:
      return OnWant(packet);
    case LineType::kFreed:
      return OnFreed(message);
    case LineType::kTaken:
      return OnTaken(message);
    case LineType::kSettled:
      return OnSettled(message);
    case LineType::kReleased:
      return OnReleased(message);
    case LineType::kHeld:
      return OnHeld(message);
    case LineType::kAdopt:
      return OnAdopt(message);
    case LineType::kDropped:
    case LineType::kAdoptFiled:
      // No end of messages that say nothing: each of these takes something that there is no end of otherwise.
      if (message.count == 0) return Wrong("it named no chunk");
      return message.type == LineType::kDropped ? OnDropped(message) : OnAdoptFiled(message);
    default:
      return Wrong("it sent a message of a type that programs do not send");
  }
}

void Program::Expect(Question question) {
  if (questions_.empty()) asked_at_ = MonotonicNow();
  questions_.push_back(std::move(question));
}

// Takes the question that comes next, if it is of this type.
Result<Program::Question> Program::Answered(LineType type) {
  if (questions_.empty() || questions_.front().type != type) return Wrong("it answered what it was not asked");
  Question question = std::move(questions_.front());
  questions_.pop_front();
  asked_at_ = questions_.empty() ? kNever : MonotonicNow();
  return question;
}

// Likewise for kEvict and kLoad. What was asked for is left to be done until a copy of it begins.
Result<void> Program::AnsweredAsk(LineType type, std::uint32_t count) {
  const auto question = Answered(type);
  if (!question) return std::unexpected(question.error());
  if (count > question->asked) return Wrong("it answered with more chunks than it was asked for");
  Task& task = TaskOf(type == LineType::kEvict ? Direction::kOut : Direction::kIn);
  task.left += question->asked;
  if (count == 0 && task.error == 0) task.error = ENODATA;
  return {};
}

Batch::Entry* Program::UnderWay(Direction direction, std::uint64_t chunk) {
  for (const auto& batch : batches_) {
    if (batch->direction != direction) continue;
    for (Batch::Entry& entry : batch->entries) {
      if (entry.chunk == chunk && !entry.dropped) return &entry;
    }
  }
  return nullptr;
}

Result<void> Program::OnOffer(Packet& packet) {
  const LineMessage& message = packet.message;
  if (const auto asked = AnsweredAsk(LineType::kEvict, message.count); !asked) return asked;
  for (const std::uint64_t chunk : ChunksOf(message)) {
    if (stored_.Find(chunk) != nullptr || UnderWay(Direction::kOut, chunk) != nullptr)
      return Wrong("it offered a chunk that it has given already");
  }
  if (message.count == 0) return {};

  // Slots that were free when it was asked may be somebody else's by now.
  auto batch = std::make_shared<Batch>();
  for (const std::uint64_t chunk : ChunksOf(message)) {
    const auto slot = place_.FreeFor(domain_) > 0 ? place_.pool.Take(domain_) : std::nullopt;
    if (!slot) break;
    batch->entries.push_back({.chunk = chunk, .slot = *slot});
  }
  const std::size_t taken = batch->entries.size();
  if (taken < message.count) Refuse(LineType::kKeep, Direction::kOut, ChunksOf(message).subspan(taken), 0);
  if (taken == 0) return {};
  auto window = place_.gpu.Import(std::span(packet.fds).first(taken));
  if (!window) {
    for (const Batch::Entry& entry : batch->entries) place_.pool.GiveBack(entry.slot);
    if (window.error().code == EINVAL) return Fail(EPROTO, "of what it offered: " + window.error().message);
    Refuse(LineType::kKeep, Direction::kOut, ChunksOf(message).first(taken), window.error().code);
    return {};
  }
  PassFault("mover.offer.imported");
  batch->window = std::move(*window);
  Start(std::move(batch));
  return {};
}

Result<void> Program::OnFreed(const LineMessage& message) {
  const auto question = Answered(LineType::kStored);
  if (!question) return std::unexpected(question.error());
  const Batch& batch = *question->batch;
  // The question is no longer in its queue: whatever is wrong, the program may hold these slots.
  if (NamesOthers(message, batch)) {
    for (const Batch::Entry& entry : batch.entries) held_.push_back(entry.slot);
    TaskOf(Direction::kOut).left += batch.entries.size();
    Forget(question->batch);
    return Wrong("it freed chunks that were not stored");
  }
  PassFault("mover.freed.received");
  Task& task = TaskOf(Direction::kOut);
  std::uint64_t freed = 0;
  for (const Batch::Entry& entry : batch.entries) {
    const bool kept = message.error != 0 || !Names(message, entry.chunk);
    if (kept || entry.dropped) {
      place_.pool.GiveBack(entry.slot);
    } else {
      Store(entry.chunk, entry.slot);
    }
    kept ? ++task.left : ++freed;
  }
  if (freed == 0) task.error = ErrorOf(message);  // to ask again would lead to the same again
  moved_[static_cast<int>(Direction::kOut)] += freed;
  Forget(question->batch);
  if (freed > 0) TellMoved();
  return {};
}

Result<void> Program::OnWant(Packet& packet) {
  const LineMessage& message = packet.message;
  if (message.count == 0 && message.error != 0) TaskOf(Direction::kIn).error = ErrorOf(message);
  if (const auto asked = AnsweredAsk(LineType::kLoad, message.count); !asked) return asked;
  for (const std::uint64_t chunk : ChunksOf(message)) {
    const Stored* stored = stored_.Find(chunk);
    if (stored == nullptr || stored->tier != Tier::kSlot) return Wrong("it wants a chunk that is in no slot");
  }
  if (message.count == 0) return {};
  const auto chunks = ChunksOf(message);
  auto window = place_.gpu.Import(packet.fds);
  if (!window) {
    if (window.error().code == EINVAL) return Fail(EPROTO, "of what it wants memory for: " + window.error().message);
    Refuse(LineType::kStay, Direction::kIn, chunks, window.error().code);
    return {};
  }
  PassFault("mover.want.imported");
  auto batch = std::make_shared<Batch>();
  batch->direction = Direction::kIn;
  batch->window = std::move(*window);
  for (const std::uint64_t chunk : chunks) {
    Stored& stored = stored_.At(chunk);
    stored_.Put(stored, Tier::kLoading);
    batch->entries.push_back({.chunk = chunk, .slot = stored.slot});
  }
  Start(std::move(batch));
  return {};
}

Result<void> Program::OnTaken(const LineMessage& message) {
  const auto question = Answered(LineType::kLoaded);
  if (!question) return std::unexpected(question.error());
  const Batch& batch = *question->batch;
  if (NamesOthers(message, batch)) {
    for (const Batch::Entry& entry : batch.entries) {
      if (entry.dropped) held_.push_back(entry.slot);
    }
    TaskOf(Direction::kIn).left += batch.entries.size();
    Forget(question->batch);
    return Wrong("it took chunks that were not loaded");
  }
  PassFault("mover.taken.received");
  Task& task = TaskOf(Direction::kIn);
  std::uint64_t taken = 0;
  for (const Batch::Entry& entry : batch.entries) {
    const bool stays = message.error != 0 || !Names(message, entry.chunk);
    stays ? ++task.left : ++taken;
    if (entry.dropped) {
      place_.pool.GiveBack(entry.slot);
    } else if (stays) {
      stored_.Put(stored_.At(entry.chunk), Tier::kSlot);
    } else {
      stored_.Erase(entry.chunk);
      place_.pool.GiveBack(entry.slot);
    }
  }
  if (taken == 0) task.error = ErrorOf(message);
  moved_[static_cast<int>(Direction::kIn)] += taken;
  Forget(question->batch);
  if (taken > 0) TellMoved();
  return {};
}

Result<void> Program::OnSettled(const LineMessage& message) {
  const auto question = Answered(LineType::kSettle);
  if (!question) return std::unexpected(question.error());
  TellSettled(message.error == 0 ? 0 : ErrorOf(message));
  return {};
}

// A copy that is under way goes on, and its slot is free after it. The name may be used anew at once.
Result<void> Program::OnDropped(const LineMessage& message) {
  for (const std::uint64_t chunk : ChunksOf(message)) {
    if (const Stored* stored = stored_.Find(chunk); stored != nullptr) {
      if (stored->tier == Tier::kSlot) place_.pool.GiveBack(stored->slot);
      if (stored->tier == Tier::kFile) place_.file->GiveBack(stored->place);
      if (stored->tier == Tier::kLoading) UnderWay(Direction::kIn, chunk)->dropped = true;
      if (stored->move) stored->move->dropped = true;
      stored_.Erase(chunk);
    } else if (Batch::Entry* entry = UnderWay(Direction::kOut, chunk); entry != nullptr) {
      entry->dropped = true;
    } else if (lost_ > 0) {
      --lost_;
    } else {
      return Wrong("it dropped a chunk that is not stored");
    }
  }
  return {};
}

// What is not in the pool is host memory that the daemon had no descriptor of, or had no daemon: it is the program's
// alone from now on, and is freed by it.
Result<void> Program::OnAdopt(const LineMessage& message) {
  if (claimed_) return Wrong("it has named already all that is to be adopted");
  LineMessage answer = {.type = LineType::kAdopted, .count = message.count};
  for (std::uint32_t i = 0; i < message.count; ++i) {
    const std::uint64_t chunk = answer.chunk[i] = message.chunk[i];
    if (stored_.Find(chunk) != nullptr || UnderWay(Direction::kOut, chunk) != nullptr)
      return Wrong("it has given a chunk already that is to be adopted");
    if (const auto slot = place_.pool.Claim(message.key[i], domain_, pid_)) {
      Store(chunk, *slot);
      answer.key[i] = message.key[i];
    } else if (orphans_++ == kMostOrphans) {
      return Wrong("it has too much in host memory of no pool");
    }
  }
  PassFault("mover.adopt.claimed");
  if (message.count > 0) Send(answer);
  claimed_ = message.count < wire::kMostChunks;
  if (claimed_) place_.pool.Abandon(pid_);
  PassFault("mover.adopted.sent");
  return {};
}

}  // namespace tessera::mover
