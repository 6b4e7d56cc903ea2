#include "server/handover/slots_ahead.h"

#include <algorithm>

namespace tessera::server {

using wire::MoverMessage;
using wire::MoverType;

namespace {

// Descriptors that wait in the socket, where there may be only so many.
constexpr std::size_t kMostOnTheWay = 16;

}  // namespace

SlotsAhead::SlotsAhead(const SlotHandover::Side& from, const SlotHandover::Side& to, pid_t owner, What what,
                       std::uint64_t most)
    : from_(from),
      to_(to),
      owner_(owner),
      marks_(what == What::kLeft ? MarksAt(to.link.Gpu(), from.link.Gpu(), wire::SwapEntry::kTransit) : 0) {
  if (what == What::kFree) {
    const auto free = from_.slots.Free();
    next_.assign(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(free.size(), most)));
  } else {
    ear_from_ = from_.link.Listen([this](const MoverMessage* message) { OnFrom(message); });
  }
  ear_to_ = to_.link.Listen([this](const MoverMessage* message) { OnTo(message); });
  TellMore();
}

SlotsAhead::~SlotsAhead() {
  from_.link.Unlisten(ear_from_);
  to_.link.Unlisten(ear_to_);
  to_.link.Tell({.type = MoverType::kReachOver, .program = static_cast<std::uint64_t>(owner_)});
}

void SlotsAhead::TellMore() {
  while (!next_.empty() && on_the_way_.size() < kMostOnTheWay) {
    const std::uint64_t number = next_.front();
    next_.pop_front();
    const int memory = from_.slots.MemoryOf(number);
    const MoverMessage reach = {.type = MoverType::kReach,
                                .program = static_cast<std::uint64_t>(owner_),
                                .bytes = number,
                                .marks = marks_};
    if (memory >= 0 && to_.link.Tell(reach, memory)) on_the_way_.insert(number);
  }
}

void SlotsAhead::OnFrom(const MoverMessage* message) {
  if (!message || message->type != MoverType::kSlotLeft || message->program != static_cast<std::uint64_t>(owner_))
    return;
  next_.push_back(message->bytes);
  TellMore();
}

void SlotsAhead::OnTo(const MoverMessage* message) {
  if (!message) return next_.clear();  // the next one maps them when it needs them
  if (message->type == MoverType::kReached && on_the_way_.erase(message->bytes) > 0) TellMore();
}

}  // namespace tessera::server
