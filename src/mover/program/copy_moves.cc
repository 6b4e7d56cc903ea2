#include "mover/program/copy_moves.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "mover/program/batch_units.h"
#include "mover/program/program.h"

namespace tessera::mover {

using wire::LineMessage;
using wire::LineType;
using wire::MoverType;
using Tier = Stored::Tier;

namespace {

// Limits of the questions ahead of a program's answers, and of all that is under way: enough that copy engines do not
// wait for it, and little enough that its memory does not lie here for long.
constexpr std::size_t kMostAsked = 3;
constexpr std::size_t kMostUnderWay = 6;
// Slots of this GPU's memory whose content has come in, and that are not freed yet: before more comes in, they are.
constexpr std::uint64_t kMostLeft = 16;

LineType TypeOf(Direction direction, bool holes) {
  if (direction == Direction::kIn) return LineType::kLoad;
  return holes ? LineType::kSqueeze : LineType::kEvict;
}

// An answer may leave chunks of the question out, which are then as they were, but names no others.
bool NamesOthers(const LineMessage& message, const Batch& batch) {
  return !std::ranges::all_of(ChunksOf(message), [&](std::uint64_t chunk) {
    return std::ranges::find(batch.entries, chunk, &Batch::Entry::chunk) != batch.entries.end();
  });
}

// The program may hold the memory of these slots, and no name of a chunk leads to them.
void HoldSlots(const Batch& batch, StoredChunks& stored) {
  for (const Batch::Entry& entry : batch.entries) {
    if (batch.direction == Direction::kOut || entry.dropped) stored.held.push_back(entry.slot);
  }
}

// The chunk's entry, if it is on its way in this direction and needed still.
Batch::Entry* UnderWay(std::span<const std::shared_ptr<Batch>> batches, Direction direction, std::uint64_t chunk) {
  for (const auto& batch : batches) {
    if (batch->direction != direction) continue;
    for (Batch::Entry& entry : batch->entries) {
      if (entry.chunk == chunk && !entry.dropped) return &entry;
    }
  }
  return nullptr;
}

// The line ended before the copy did.
void CopiedForNobody(const Batch& batch, Pool& pool, StoredChunks& stored) {
  for (const Batch::Entry& entry : batch.entries) {
    if (batch.direction == Direction::kOut) {
      pool.GiveBack(entry.slot);  // its descriptor was not given to the program for this copy
    } else if (entry.dropped) {
      stored.held.push_back(entry.slot);
    }
  }
}

// False: one of them is lost.
Result<bool> MayLoad(const LineMessage& want, StoredChunks& known) {
  for (const std::uint64_t chunk : ChunksOf(want)) {
    const Stored* stored = known.Find(chunk);
    if (stored == nullptr && known.lost > 0) return false;
    if (stored == nullptr || (stored->tier != Tier::kSlot && stored->tier != Tier::kParked))
      return Fail(EPROTO, "it wants a chunk that is in no slot");
  }
  return true;
}

// The units that the program has let go of; the others stay to be done.
std::uint64_t NoteFreed(const LineMessage& message, const Batch& batch, Tier tier, Workplace& place,
                        StoredChunks& stored, MoveTask& task, MoveCounts& counts) {
  std::uint64_t freed = 0;
  for (const Batch::Entry& entry : batch.entries) {
    const bool kept = message.error != 0 || !Names(message, entry.chunk);
    if (kept || entry.dropped) {
      place.pool.GiveBack(entry.slot);
    } else {
      stored.Add(entry.chunk, {.tier = tier, .number = place.stored++, .slot = entry.slot, .units = entry.part.units});
    }
    (kept ? task.left : freed) += entry.part.Taken();
    if (!kept) counts.copied[0] += wire::CountOf(entry.part.units);
  }
  return freed;
}

// Likewise those that have come.
std::uint64_t NoteTaken(const LineMessage& message, const Batch& batch, Pool& pool, StoredChunks& stored,
                        MoveTask& task, MoveCounts& counts) {
  std::uint64_t taken = 0;
  for (const Batch::Entry& entry : batch.entries) {
    const bool stays = message.error != 0 || !Names(message, entry.chunk);
    (stays ? task.left : taken) += entry.part.Taken();
    if (!stays) counts.copied[1] += wire::CountOf(entry.part.units);
    if (entry.dropped) {
      pool.GiveBack(entry.slot);
    } else if (stays) {
      stored.Put(stored.At(entry.chunk), entry.parked ? Tier::kParked : Tier::kSlot);
    } else {
      stored.Erase(entry.chunk);
      pool.GiveBack(entry.slot);
    }
  }
  return taken;
}

Result<void> ReachSlots(const LineMessage& want, StoredChunks& known, Workplace& place) {
  Result<void> reached;
  for (const std::uint64_t chunk : ChunksOf(want)) {
    if (reached) reached = place.gpu.Reach(place.pool.MemoryOf(known.At(chunk).slot));
  }
  return reached;
}

// Gives the slots of a batch to its program: with their memory (`fds`), or, if it is to be away, without. Those are
// marked as parked before the program can have heard that it holds nothing of them. Without a key no mover finds one:
// it is given to the program.
LineMessage StoredMessage(const ProgramContext& context, Batch& batch, std::vector<int>& fds) {
  Pool& pool = context.place.pool;
  LineMessage message = {.type = LineType::kStored};
  for (const Batch::Entry& entry : batch.entries) {
    pool.Give(entry.slot, context.domain, context.pid);
    message.chunk[message.count] = entry.chunk;
    message.key[message.count++] = pool.EntryOf(entry.slot).key;
    batch.away &= pool.EntryOf(entry.slot).key != 0;
  }
  for (const Batch::Entry& entry : batch.entries) {
    if (batch.away) pool.Park(entry.slot, true);
    if (!batch.away) fds.push_back(pool.MemoryOf(entry.slot).fd.Get());
  }
  if (batch.away) message.type = LineType::kStoredAway;
  return message;
}

}  // namespace

// ---- wishes ----

CopyMoves::CopyMoves(const ProgramContext& context, Line& line, Questions& questions, StoredChunks& stored,
                     ShownChunks& shown)
    : context_(context),
      place_(context.place),
      line_(line),
      questions_(questions),
      stored_(stored),
      shown_(shown),
      leavings_(context, line, shown, TaskOf(Direction::kOut)) {}

void CopyMoves::Wish(Direction direction, std::uint64_t units, std::uint64_t holes) {
  MoveTask& task = TaskOf(direction);
  task.pending = true;
  task.Add(units, direction, holes);
  task.error = 0;
  if (!line_.open()) Finish(direction, task.left, EPIPE);
}

void CopyMoves::Activate() {
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    if (!active_ && TaskOf(direction).pending) active_ = direction;
  }
}

void CopyMoves::GoOn(std::uint64_t loadable, int error) {
  if (!active_) return;
  MoveTask& task = TaskOf(*active_);
  const bool in = *active_ == Direction::kIn;
  const std::uint64_t most = !in && in_place_             ? wire::kMostChunks
                             : in && stored_.Parked() > 0 ? kAtATimeOfAll
                                                          : kAtATime;
  while (task.left > 0 && task.error == 0) {
    if (in && place_.pool.Count().transits_given_up > kMostLeft) return;
    if (questions_.Asks() >= kMostAsked || questions_.Asks() + batches_.size() >= kMostUnderWay) return;
    const std::uint64_t asked = questions_.AskedChunks();
    // Answers give back what they do not take: all of that may be place for a chunk, where each part is not.
    if (in && asked > 0 && task.left < wire::kUnitsPerChunk) return;
    if (!in && !HasSlots()) break;
    const std::uint64_t ready = in ? loadable : in_place_ ? place_.pool.Places() : place_.FreeFor(context_.domain);
    const std::uint64_t count = std::min({ChunksFor(task.left), most, ready - std::min(ready, asked)});
    if (count == 0 && asked == 0 && in) task.error = error;
    if (count == 0) break;
    Ask(*active_, static_cast<std::uint32_t>(count));
  }
  if ((task.left == 0 || task.error != 0) && batches_.empty() && questions_.AskedChunks() == 0)
    Finish(*active_, task.left, task.left > 0 ? task.error : 0);
}

void CopyMoves::Ask(Direction direction, std::uint32_t count) {
  MoveTask& task = TaskOf(direction);
  const LineType type = TypeOf(direction, task.holes > 0);
  const auto units = static_cast<std::uint32_t>(std::min<std::uint64_t>(task.left, count * wire::kUnitsPerChunk));
  const bool in = type == LineType::kLoad;
  const std::uint32_t holes = in ? task.HolesFor(questions_.AskedChunks()) : 0;
  const std::uint32_t round = type == LineType::kEvict && in_place_ ? shown_.round() : 0;
  line_.Send({.type = type, .count = count, .room = in ? units : round, .holes = holes});
  questions_.Expect({.type = type, .asked = count, .units = units}, place_.now);
  task.left -= units;
}

void CopyMoves::Finish(Direction direction, std::uint64_t left, int error) {
  const bool out = direction == Direction::kOut;
  if (!context_.gone)
    context_.Tell(
        {.type = out ? MoverType::kEvicted : MoverType::kLoaded, .error = error, .bytes = left * wire::kUnitBytes});
  TaskOf(direction) = {};
  if (active_ == direction) active_.reset();
}

std::uint64_t CopyMoves::Demand() const {
  const MoveTask& task = TaskOf(Direction::kOut);
  if (active_ != Direction::kOut) return 0;
  if (in_place_) return left_out_;
  return questions_.AskedChunks() + (task.error == 0 ? ChunksFor(task.left) : 0);
}

// For chunks that found none before.
bool CopyMoves::HasSlots() const { return left_out_ == 0 || place_.FreeFor(context_.domain) >= left_out_; }

std::uint64_t CopyMoves::ToLoad() const {
  const MoveTask& task = TaskOf(Direction::kIn);
  return Loads() && task.error == 0 ? ChunksFor(task.left) + questions_.AskedChunks() : 0;
}

bool CopyMoves::Stores() const {
  const bool asked = active_ == Direction::kOut && questions_.AskedChunks() > 0;
  const auto goes = [](const auto& batch) { return batch->direction == Direction::kOut; };
  return asked || std::ranges::any_of(batches_, goes);
}

bool CopyMoves::Starve() {
  MoveTask& task = TaskOf(Direction::kOut);
  const bool evicts = active_ == Direction::kOut && task.left > 0 && task.error == 0;
  const bool full = in_place_ ? !HasSlots() || place_.pool.Places() <= questions_.AskedChunks()
                              : place_.FreeFor(context_.domain) <= questions_.AskedChunks();
  if (evicts && full) task.error = ENOMEM;
  return evicts;
}

void CopyMoves::EndLine() {
  std::uint64_t under_way = questions_.AskedUnits();
  for (const auto& batch : batches_) under_way += UnitsOf(*batch);
  for (const Question& question : questions_) {
    if (question.batch == nullptr) continue;
    HoldSlots(*question.batch, stored_);
    Forget(question.batch);
  }
  leavings_.GiveBack(batches_);
  if (active_) TaskOf(*active_).left += under_way;
  for (const Direction direction : {Direction::kOut, Direction::kIn}) {
    if (TaskOf(direction).pending) Finish(direction, TaskOf(direction).left, EPIPE);
  }
}

// ---- copies ----

void CopyMoves::Start(std::shared_ptr<Batch> batch) {
  batch->program = context_.program.shared_from_this();
  batches_.push_back(batch);
  TaskOf(batch->direction).Begin(*batch);
  ++copying_;
  if (const auto started = place_.copier.Start(batch); !started) place_.broken = started.error();
}

// By value: the caller may hold the batch by what is erased.
void CopyMoves::Forget(std::shared_ptr<Batch> batch) { std::erase(batches_, batch); }

bool CopyMoves::GoesOut(std::uint64_t chunk) const { return UnderWay(batches_, Direction::kOut, chunk) != nullptr; }

bool CopyMoves::Drop(Direction direction, std::uint64_t chunk) {
  Batch::Entry* entry = UnderWay(batches_, direction, chunk);
  if (entry != nullptr) entry->dropped = true;
  return entry != nullptr;
}

void CopyMoves::OnCopied(const std::shared_ptr<Batch>& batch) {
  --copying_;
  const bool waits = batch->direction == Direction::kIn && stored_.Parked() > 0;
  if (waits) place_.closing.push_back(std::move(batch->window));
  batch->window.reset();
  if (line_.open()) return batch->direction == Direction::kOut ? GiveStored(batch) : GiveLoaded(batch);
  CopiedForNobody(*batch, place_.pool, stored_);
  Forget(batch);
}

void CopyMoves::GiveStored(const std::shared_ptr<Batch>& batch) {
  std::vector<int> fds;
  batch->away = in_place_ || !stored_.imports;
  line_.Send(StoredMessage(context_, *batch, fds), fds);
  PassFault(batch->away ? "mover.away.sent" : "mover.stored.sent");
  questions_.Expect({.type = LineType::kStored, .batch = batch}, place_.now);
}

void CopyMoves::GiveLoaded(const std::shared_ptr<Batch>& batch) {
  std::vector<std::uint64_t> chunks;
  for (const Batch::Entry& entry : batch->entries) chunks.push_back(entry.chunk);
  line_.Say(LineType::kLoaded, chunks);
  PassFault("mover.loaded.sent");
  questions_.Expect({.type = LineType::kLoaded, .batch = batch}, place_.now);
}

// ---- answers ----

Result<void> CopyMoves::OnAnswer(LinePacket& packet) {
  switch (packet.message.type) {
    case LineType::kOffer:
      return OnOffer(packet);
    case LineType::kFreed:
      return OnFreed(packet.message);
    case LineType::kWant:
      return OnWant(packet);
    default:
      return OnTaken(packet.message);
  }
}

// The answer to kEvict, kSqueeze or kLoad. The request is left to be done until a copy of it begins.
Result<void> CopyMoves::AnsweredAsk(LineType type, const LineMessage& answer) {
  const auto question = questions_.Answered(type, place_.now);
  if (!question) return std::unexpected(question.error());
  if (answer.count > question->asked) return Fail(EPROTO, "it answered with more chunks than it was asked for");
  const std::uint64_t units = UnitsIn(answer);
  if (units == 0 && answer.count > 0) return Fail(EPROTO, "it named a chunk with impossible parts, or without any");
  if (type == LineType::kLoad && units > question->units)
    return Fail(EPROTO, "it made more memory than there is room for");
  MoveTask& task = TaskOf(type == LineType::kLoad ? Direction::kIn : Direction::kOut);
  task.left += question->units;
  if (answer.count == 0 && task.error == 0) task.error = ENODATA;
  return {};
}

// The question is no longer in its queue: whatever is wrong, the program may hold these slots.
Result<void> CopyMoves::EndWrongly(const std::shared_ptr<Batch>& batch, const char* why) {
  HoldSlots(*batch, stored_);
  TaskOf(batch->direction).left += UnitsOf(*batch);
  Forget(batch);
  return Fail(EPROTO, why);
}

Result<void> CopyMoves::OnOffer(LinePacket& packet) {
  const LineMessage& message = packet.message;
  const LineType type = questions_.NextIs(LineType::kSqueeze) ? LineType::kSqueeze : LineType::kEvict;
  if (const auto asked = AnsweredAsk(type, message); !asked) return asked;
  for (const std::uint64_t chunk : ChunksOf(message)) {
    if (stored_.Find(chunk) != nullptr || GoesOut(chunk))
      return Fail(EPROTO, "it offered a chunk that it has given already");
  }
  left_out_ = 0;
  if (in_place_) LeaveInPlace(Leavings::TakeWhole(packet));
  return message.count > 0 ? StartCopyOut(packet) : Result<void>();
}

void CopyMoves::LeaveInPlace(LinePacket whole) {
  const auto batch = leavings_.Leave(std::move(whole));
  if (batch == nullptr) return;
  TaskOf(Direction::kOut).Begin(*batch);
  batches_.push_back(batch);
  if (batch->not_kept == 0) GiveStored(batch);
}

void CopyMoves::OnKept(std::uint64_t number, int error) {
  const auto batch = leavings_.OnKept(batches_, number, error);
  if (batch != nullptr) batch->entries.empty() ? Forget(batch) : GiveStored(batch);
}

// Slots that were free when it was asked may be another program's by now.
Result<void> CopyMoves::StartCopyOut(LinePacket& packet) {
  const LineMessage& message = packet.message;
  auto batch = std::make_shared<Batch>();
  const std::vector<ChunkPart> parts = PartsOf(message);
  for (std::uint32_t n = 0; n < message.count; ++n) {
    const auto slot = place_.FreeFor(context_.domain) > 0 ? place_.pool.Take(context_.domain) : std::nullopt;
    if (!slot) break;
    batch->entries.push_back({.chunk = message.chunk[n], .slot = *slot, .part = parts[n]});
  }
  const std::size_t taken = batch->entries.size();
  if (taken < message.count) line_.Say(LineType::kKeep, ChunksOf(message).subspan(taken));
  if (in_place_) left_out_ = message.count - taken;
  if (taken == 0) return {};
  auto window = place_.gpu.Import(Gpu::On::kThis, packet.fds, std::span(parts).first(taken));
  if (!window) {
    for (const Batch::Entry& entry : batch->entries) place_.pool.GiveBack(entry.slot);
    if (window.error().code == EINVAL) return Fail(EPROTO, "of what it offered: " + window.error().message);
    line_.Say(LineType::kKeep, ChunksOf(message).first(taken));
    TaskOf(Direction::kOut).error = window.error().code;
    return {};
  }
  PassFault("mover.offer.imported");
  batch->window = std::move(*window);
  Start(std::move(batch));
  return {};
}

Result<void> CopyMoves::OnFreed(const LineMessage& message) {
  const auto question = questions_.Answered(LineType::kStored, place_.now);
  if (!question) return std::unexpected(question.error());
  const Batch& batch = *question->batch;
  if (NamesOthers(message, batch)) return EndWrongly(question->batch, "it freed chunks that were not stored");
  PassFault("mover.freed.received");
  MoveTask& task = TaskOf(Direction::kOut);
  const Tier tier = batch.away ? Tier::kParked : Tier::kSlot;
  const std::uint64_t freed = NoteFreed(message, batch, tier, place_, stored_, task, counts_);
  if (!batch.away && IsRefusal(message)) {
    stored_.imports = false;  // the same chunks go again, and are away then
  } else if (freed == 0) {
    task.error = ErrorOf(message);  // to ask again would lead to the same again
  }
  counts_.moved[0] += freed;
  Forget(question->batch);
  if (freed > 0) counts_.Tell(context_);
  return {};
}

Result<void> CopyMoves::OnWant(LinePacket& packet) {
  const LineMessage& message = packet.message;
  MoveTask& task = TaskOf(Direction::kIn);
  if (message.count == 0 && message.error != 0) task.error = ErrorOf(message);
  if (const auto asked = AnsweredAsk(LineType::kLoad, message); !asked) return asked;
  const auto may = MayLoad(message, stored_);
  if (!may) return std::unexpected(may.error());
  if (message.count == 0) return {};
  const auto stay = [&](int error) {
    task.error = error;
    line_.Say(LineType::kStay, ChunksOf(message));
    return Result<void>();
  };
  if (!*may) return stay(ESTALE);
  if (const auto reached = ReachSlots(message, stored_, place_); !reached) return stay(reached.error().code);
  const std::vector<ChunkPart> parts = PartsOf(message);
  auto window = place_.gpu.Import(Gpu::On::kThis, packet.fds, parts);
  if (!window) {
    if (window.error().code == EINVAL) return Fail(EPROTO, "of what it wants memory for: " + window.error().message);
    return stay(window.error().code);
  }
  PassFault("mover.want.imported");
  auto batch = std::make_shared<Batch>();
  batch->direction = Direction::kIn;
  batch->window = std::move(*window);
  for (std::uint32_t n = 0; n < message.count; ++n) {
    Stored& stored = stored_.At(message.chunk[n]);
    batch->entries.push_back(
        {.chunk = message.chunk[n], .slot = stored.slot, .part = parts[n], .parked = stored.tier == Tier::kParked});
    stored_.Put(stored, Tier::kLoading);
  }
  Start(std::move(batch));
  return {};
}

Result<void> CopyMoves::OnTaken(const LineMessage& message) {
  const auto question = questions_.Answered(LineType::kLoaded, place_.now);
  if (!question) return std::unexpected(question.error());
  const Batch& batch = *question->batch;
  if (NamesOthers(message, batch)) return EndWrongly(question->batch, "it took chunks that were not loaded");
  PassFault("mover.taken.received");
  MoveTask& task = TaskOf(Direction::kIn);
  const std::uint64_t taken = NoteTaken(message, batch, place_.pool, stored_, task, counts_);
  if (taken == 0) task.error = ErrorOf(message);
  counts_.moved[1] += taken;
  Forget(question->batch);
  if (taken > 0) counts_.Tell(context_);
  return {};
}

}  // namespace tessera::mover
