#include "mover/program/program.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/fault.h"

namespace tessera::mover {

using wire::LineMessage;
using wire::LineType;
using Tier = Stored::Tier;

namespace {

// Chunks that a program may have in host memory of no pool: 2 TiB. Without a bound a hostile one could adopt for ever.
constexpr std::uint64_t kMostOrphans = 1u << 16;

std::uint64_t UpToUnits(std::uint64_t bytes) {
  return bytes / wire::kUnitBytes + (bytes % wire::kUnitBytes != 0 ? 1 : 0);
}

bool NamesOneTwice(const LineMessage& message) {
  std::vector<std::uint64_t> chunks(message.chunk, message.chunk + message.count);
  std::ranges::sort(chunks);
  return std::ranges::adjacent_find(chunks) != chunks.end();
}

}  // namespace

Program::Program(Workplace& place, std::uint64_t id, pid_t pid, Domain domain, UniqueFd line,
                 std::shared_ptr<SuspendedFile> file)
    : context_{.place = place, .program = *this, .id = id, .pid = pid, .domain = domain},
      line_(place.epoll, std::move(line)),
      shown_(context_, line_, questions_),
      copies_(context_, line_, questions_, stored_, shown_),
      relocations_(context_, stored_),
      files_(context_, line_, questions_, stored_, copies_),
      park_(context_, line_, questions_, stored_),
      saves_(context_, stored_, std::move(file)) {}

// ---- the daemon's wishes ----

void Program::Do(const wire::MoverMessage& message, UniqueFd fd) {
  using enum wire::MoverType;
  switch (message.type) {
    case kEvict:
      return Evict(UpToUnits(message.bytes), message.other);
    case kLoad:
      return Move(Direction::kIn, message.bytes / wire::kUnitBytes,
                  message.other == wire::kAnyHoleBytes ? kAnyHoles : message.other / wire::kUnitBytes);
    case kSettle:
      return Settle();
    case kPark:
      return Park();
    case kRelocate:
      return relocations_.Begin();
    case kSave:
      return Save(message, std::move(fd));
    case kUnsave:
      return saves_.Unsave();
    default:
      return;
  }
}

void Program::Evict(std::uint64_t units, std::uint64_t how) {
  copies_.GoAway(how == wire::kEvictInPlace);
  Move(Direction::kOut, units, how == wire::kEvictHoles ? how : 0);
}

void Program::Move(Direction direction, std::uint64_t units, std::uint64_t holes) {
  files_.Wish(direction == Direction::kOut);
  if (direction == Direction::kIn) saves_.Return();
  if (direction == Direction::kIn) relocations_.Stop();
  copies_.Wish(direction, units, holes);
}

void Program::Return() {
  saves_.Return();
  park_.Return();
}

void Program::Settle() {
  Return();
  files_.Settle();
}

// Nothing more goes to the file meanwhile: what stays in its slot is there again sooner.
void Program::Park() {
  files_.Wish(false);
  park_.Park();
}

void Program::Save(const wire::MoverMessage& message, UniqueFd file) {
  SuspendedHeader of = {.pid = static_cast<std::uint32_t>(context_.pid), .start = message.bytes};
  std::memcpy(&of.gpu, message.text, sizeof of.gpu);
  relocations_.Begin();  // no GPU's memory can be written to a file
  saves_.Save(std::move(file), of);
}

void Program::Gone() {
  context_.gone = true;
  if (line_.open()) EndLine();
  LeaveSlots();
}

// ---- going on ----

void Program::AddDemand(Demand& demand) const {
  if (const std::uint64_t chunks = files_.ToRead() + saves_.ToRead() + copies_.Demand() + relocations_.Demand();
      chunks > 0)
    demand[context_.domain] += chunks;
}

void Program::GoOn() {
  if (questions_.WaitsLongerThan(context_.place.patience, context_.place.now)) {
    std::fprintf(stderr, "tessera-mover: program %llu: it does not answer; its line is closed\n",
                 static_cast<unsigned long long>(context_.id));
    line_.Break();
  }
  if (line_.broken()) EndLine();
  if (!line_.open()) return;
  if (!stored_.imports && !std::exchange(told_, true)) context_.Tell({.type = wire::MoverType::kNoHostMemory});
  shown_.GoOn();
  relocations_.GoOn();
  saves_.GoOn(copies_.Idle() && relocations_.Idle() && files_.Idle() && !park_.Parks(), claimed_ || answers_);
  if (saves_.Busy()) return;
  park_.GoOn(!copies_.Idle(), !files_.Idle());
  if (park_.Parks()) return;
  if (!relocations_.Busy()) copies_.Activate();
  files_.GoOn();
  copies_.GoOn(files_.Loadable(), files_.error());
}

void Program::Starve() {
  relocations_.Starve();
  saves_.Starve();
  files_.Starve();
  if (copies_.Starve() || files_.error() != 0) GoOn();
}

void Program::OnCopied(const std::shared_ptr<Batch>& batch) {
  batch->relocates ? relocations_.OnCopied(batch) : copies_.OnCopied(batch);
  if (!line_.open() && context_.gone) LeaveSlots();
  batch->program.reset();
}

void Program::OnDisk(const std::shared_ptr<FileMove>& move, const Result<void>& result) {
  files_.OnDisk(move, result);
  if (!line_.open() && context_.gone) LeaveSlots();
}

// ---- the end ----

void Program::EndLine() {
  line_.Close();
  shown_.EndLine();
  files_.EndLine();
  copies_.EndLine();
  park_.EndLine();
  saves_.EndLine();
  questions_.Clear();
}

// A program without a line may still write to the host memory that it has: the pool looks whether its process has
// ended. One that gets another line claims what it has, but not what is being copied: that takes milliseconds, and
// costs it nothing but that it stays out.
void Program::LeaveSlots() {
  const bool all = !copies_.Copies() && !files_.UsesDisk();
  stored_.EraseIf([&](const Stored& stored) {
    if (!all && (stored.tier == Tier::kLoading || stored.tier == Tier::kFiling)) return false;
    stored_.held.push_back(stored.slot);
    return true;
  });
  Workplace& place = context_.place;
  for (const Slot slot : std::exchange(stored_.held, {})) place.claims.Leave(slot, place.now + kClaimTime);
}

// ---- what the program says ----

void Program::OnEvent(std::uint32_t events) {
  if (events & EPOLLOUT) line_.OnWritable();
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) OnReadable();
}

void Program::OnReadable() {
  if (!line_.open()) return;
  auto packet = line_.Receive();
  if (packet && !*packet) return;
  Result<void> right;
  if (!packet) {
    right = std::unexpected(packet.error());
  } else if (std::optional<LinePacket>& taken = *packet; taken) {
    right = OnPacket(std::move(*taken));
  }
  if (right) return;
  if (packet || packet.error().code != EPIPE) {
    std::fprintf(stderr, "tessera-mover: program %llu: %s; its line is closed\n",
                 static_cast<unsigned long long>(context_.id), right.error().Text().c_str());
  }
  EndLine();
}

Result<void> Program::OnPacket(LinePacket packet) {
  const LineMessage& message = packet.message;
  if (NamesOneTwice(message)) return Fail(EPROTO, "it named a chunk twice in a message");
  const bool unasked =
      message.type == LineType::kAdopt || message.type == LineType::kAdoptFiled || message.type == LineType::kDropped;
  answers_ |= !unasked;
  switch (message.type) {
    case LineType::kOffer:
    case LineType::kFreed:
    case LineType::kWant:
    case LineType::kTaken:
      return copies_.OnAnswer(packet);
    case LineType::kShown:
      return shown_.OnAnswer(packet);
    case LineType::kReleased:
    case LineType::kHeld:
      return questions_.NextParks() ? park_.OnAnswer(message) : files_.OnAnswer(message);
    case LineType::kSettled:
      return files_.OnAnswer(message);
    case LineType::kParked:
      return park_.OnAnswer(message);
    case LineType::kAdopt:
      return OnAdopt(message);
    case LineType::kDropped:
    case LineType::kAdoptFiled:
      // Each of these uses up something that is bounded, so that a hostile program cannot send them for ever.
      if (message.count == 0) return Fail(EPROTO, "it named no chunk");
      if (message.type == LineType::kDropped) return OnDropped(message);
      if (IsGiven(message)) return Fail(EPROTO, "it has given a chunk already that is to be adopted");
      for (std::uint32_t i = 0; i < message.count; ++i) files_.AdoptAway(message.chunk[i], message.key[i], saves_);
      return {};
    default:
      return Fail(EPROTO, "it sent a message of a type that programs do not send");
  }
}

// A copy that is under way goes on, and its slot is free after it. The name may be used again at once.
Result<void> Program::OnDropped(const LineMessage& message) {
  for (const std::uint64_t chunk : ChunksOf(message)) {
    if (const Stored* stored = stored_.Find(chunk); stored != nullptr) {
      if (stored->tier == Tier::kSlot || stored_.IsParked(*stored)) context_.place.pool.GiveBack(stored->slot);
      if (stored->tier == Tier::kFile) context_.place.file->GiveBack(stored->place);
      if (stored->tier == Tier::kLoading) copies_.Drop(Direction::kIn, chunk);
      if (stored->move) stored->move->dropped = true;
      stored_.Erase(chunk);
    } else if (copies_.Drop(Direction::kOut, chunk)) {
      continue;
    } else if (stored_.lost > 0) {
      --stored_.lost;
    } else {
      return Fail(EPROTO, "it dropped a chunk that is not stored");
    }
  }
  return {};
}

// Whether the mover has one of the named chunks already.
bool Program::IsGiven(const LineMessage& message) {
  return std::ranges::any_of(
      ChunksOf(message), [&](std::uint64_t chunk) { return stored_.Find(chunk) != nullptr || copies_.GoesOut(chunk); });
}

// A chunk that is in no slot lies in host memory that the daemon had no descriptor of, or had no daemon: that memory is
// the program's alone from now on, and the program frees it.
Result<void> Program::OnAdopt(const LineMessage& message) {
  Workplace& place = context_.place;
  if (claimed_) return Fail(EPROTO, "it has named already all that is to be adopted");
  if (IsGiven(message)) return Fail(EPROTO, "it has given a chunk already that is to be adopted");
  LineMessage answer = {.type = LineType::kAdopted, .count = message.count};
  for (std::uint32_t i = 0; i < message.count; ++i) {
    answer.chunk[i] = message.chunk[i];
    if (const auto slot = place.claims.Claim(message.key[i], context_.domain, context_.pid)) {
      place.pool.Park(*slot, false);
      stored_.Add(message.chunk[i], {.number = place.stored++, .slot = *slot});
      answer.key[i] = message.key[i];
    } else if (orphans_++ == kMostOrphans) {
      return Fail(EPROTO, "it has too much in host memory of no pool");
    }
  }
  PassFault("mover.adopt.claimed");
  if (message.count > 0) line_.Send(answer);
  claimed_ = message.count < wire::kMostChunks;
  if (claimed_) place.claims.Abandon(context_.pid);
  if (claimed_ && orphans_ == 0)
    place.tell({.type = wire::MoverType::kClaimed, .bytes = static_cast<std::uint64_t>(context_.pid)});
  PassFault("mover.adopted.sent");
  return {};
}

}  // namespace tessera::mover
