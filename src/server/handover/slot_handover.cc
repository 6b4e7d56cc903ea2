#include "server/handover/slot_handover.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tessera::server {

using wire::MoverMessage;
using wire::MoverType;

namespace {

std::unexpected<Error> NoMover(const char* which) {
  return Fail(EAGAIN, std::string("the mover of the ") + which + " GPU is not there", "try again in a second");
}

}  // namespace

std::uint32_t MarksAt(std::uint32_t to, std::uint32_t from, std::uint32_t marks) {
  using Entry = wire::SwapEntry;
  if ((marks & Entry::kTransit) == 0) return 0;
  const std::uint32_t named = marks >> Entry::kGpuShift, gpu = named == 0 ? from : named - 1;
  return Entry::kTransit | (gpu == to ? 0 : (gpu + 1) << Entry::kGpuShift);
}

SlotHandover::~SlotHandover() {
  if (done_ || complete_) Undo();
}

Result<void> SlotHandover::Start(Done done) {
  if (!to_.link.Ready()) return NoMover("other");
  if (!from_.link.Ready() || !from_.link.Tell({.type = MoverType::kLend, .bytes = static_cast<std::uint64_t>(owner_)}))
    return NoMover("first");
  done_ = std::move(done);
  ear_from_ = from_.link.Listen([this](const MoverMessage* message) { OnFirst(message); });
  ear_to_ = to_.link.Listen([this](const MoverMessage* message) { OnSecond(message); });
  return {};
}

// When it has lent the slots the first mover is not needed any more: the daemon has them.
void SlotHandover::OnFirst(const MoverMessage* message) {
  if (!slots_.empty()) return;
  if (!message) return End(NoMover("first"));
  if (message->type == MoverType::kLent && message->bytes == static_cast<std::uint64_t>(owner_)) OnLent(*message);
}

void SlotHandover::OnLent(const MoverMessage& message) {
  if (message.error != 0)
    return End(Fail(message.error, std::string("the program is not parked: ") + std::strerror(message.error)));
  const auto lent = from_.slots.LentOf(owner_);
  if (!lent) return End(std::unexpected(lent.error()));
  if (lent->size() != message.other)
    return End(Fail(EMFILE, "the daemon does not have all host memory of the program",
                    "raise the limit of open files (LimitNOFILE=)"));
  slots_ = *lent;
  std::erase_if(slots_, [this](const auto& entry) { return but_.contains(entry.memory); });
  GiveMore();
}

// A few at a time: their descriptors wait in the socket, where there may be only so many.
void SlotHandover::GiveMore() {
  while (given_ < slots_.size() && on_the_way_.size() < kMostSlotsOnTheWay) {
    if (auto given = Give(slots_[given_++]); !given) return End(std::move(given));
  }
  if (on_the_way_.empty()) End({});
}

Result<void> SlotHandover::Give(const wire::SwapEntry& entry) {
  const int memory = from_.slots.MemoryOf(entry.memory);
  if (memory < 0) return Fail(ESTALE, "the program has freed some of it meanwhile");
  if (!KeepThere(entry.memory, memory))
    return Fail(EMFILE, "the daemon cannot keep more host memory", "raise the limit of open files (LimitNOFILE=)");
  const MoverMessage message = {.type = MoverType::kSlotFor,
                                .program = static_cast<std::uint64_t>(owner_),
                                .bytes = entry.memory,
                                .other = entry.key,
                                .domain = entry.domain,
                                .marks = MarksAt(to_.link.Gpu(), from_.link.Gpu(), entry.marks)};
  if (!to_.link.Tell(message, memory)) return NoMover("other");
  on_the_way_[entry.memory] = entry;
  return {};
}

// The next mover of that GPU gets it, too, and so does the next daemon.
bool SlotHandover::KeepThere(std::uint64_t number, int memory) {
  if (to_.slots.Has(number)) return true;
  to_.holder.Keep(number, UniqueFd(fcntl(memory, F_DUPFD_CLOEXEC, 0)));
  if (!to_.slots.Has(number)) return false;
  kept_.insert(number);
  return true;
}

void SlotHandover::OnSecond(const MoverMessage* message) {
  if (complete_) return;  // the next mover of that GPU gets what this one had
  if (!message) return End(NoMover("other"));
  const auto given = message->type == MoverType::kSlotTaken ? on_the_way_.find(message->bytes) : on_the_way_.end();
  if (given == on_the_way_.end()) return;
  if (message->error != 0)
    return End(Fail(message->error, std::string("the other GPU's mover does not take what the program has: ") +
                                        std::strerror(message->error)));
  // An earlier stay of the same memory may have ended between the question and the answer.
  if (!to_.slots.Has(message->bytes)) {
    if (auto again = Give(wire::SwapEntry(given->second)); !again) End(std::move(again));
    return;
  }
  on_the_way_.erase(given);
  GiveMore();
}

// The daemon first: if the mover dies before it has heard that, the next one does not get them.
void LetGo(const SlotHandover::Side& side, const std::set<std::uint64_t>& numbers) {
  for (const std::uint64_t number : numbers) {
    side.holder.Forget(number);
    side.link.Tell({.type = MoverType::kLetGo, .bytes = number});
  }
}

void SlotHandover::Undo() {
  from_.link.Unlisten(ear_from_);
  to_.link.Unlisten(ear_to_);
  if (slots_.empty()) return;
  LetGo(to_, kept_);
}

std::set<std::uint64_t> SlotHandover::Numbers() const {
  std::set<std::uint64_t> numbers;
  for (const wire::SwapEntry& entry : slots_) numbers.insert(entry.memory);
  return numbers;
}

void SlotHandover::KeepBoth() {
  complete_ = false;
  from_.link.Unlisten(ear_from_);
  to_.link.Unlisten(ear_to_);
}

void SlotHandover::Commit() {
  KeepBoth();
  LetGo(from_, Numbers());
}

void SlotHandover::End(Result<void> result) {
  complete_ = result.has_value();
  if (!complete_) Undo();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

}  // namespace tessera::server
