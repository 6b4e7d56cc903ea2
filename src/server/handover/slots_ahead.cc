#include "server/handover/slots_ahead.h"

#include <algorithm>

#include "wire/line.h"

namespace tessera::server {

using wire::MoverMessage;
using wire::MoverType;

SlotsAhead::SlotsAhead(const SlotHandover::Side& from, const SlotHandover::Side& to, pid_t owner, What what,
                       std::uint64_t most)
    : from_(from), to_(to), owner_(owner), what_(what) {
  ear_from_ = from_.link.Listen([this](const MoverMessage* message) { OnFrom(message); });
  ear_to_ = to_.link.Listen([this](const MoverMessage* message) { OnTo(message); });
  if (what == What::kFree) {
    const auto free = from_.slots.Free();
    next_.assign(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(free.size(), most)));
  }
  shows_ = from_.link.Tell(Of(MoverType::kShow, most * wire::kChunkBytes));
  TellMore();
}

SlotsAhead::~SlotsAhead() {
  from_.link.Unlisten(ear_from_);
  to_.link.Unlisten(ear_to_);
  to_.link.Tell(Of(MoverType::kReachOver));
  from_.link.Tell(Of(MoverType::kShow));
}

void SlotsAhead::TellMore() {
  while (!next_.empty() && on_the_way_.size() < kMostSlotsOnTheWay) {
    const std::uint64_t number = next_.front();
    next_.pop_front();
    const int memory = from_.slots.MemoryOf(number);
    MoverMessage reach = Of(MoverType::kReach, number);
    if (what_ == What::kShown) reach.marks = MarksAt(to_.link.Gpu(), from_.link.Gpu(), wire::SwapEntry::kTransit);
    if (memory >= 0 && to_.link.Tell(reach, memory)) on_the_way_.insert(number);
  }
}

void SlotsAhead::OnFrom(const MoverMessage* message) {
  if (!message) shows_ = false;
  if (!message || message->program != static_cast<std::uint64_t>(owner_)) return;
  if (message->type == MoverType::kShownAll) shows_ = false;
  if (message->type != MoverType::kSlotLeft || what_ == What::kFree) return;
  next_.push_back(message->bytes);
  TellMore();
}

void SlotsAhead::OnTo(const MoverMessage* message) {
  if (!message) {  // the next one maps them when it needs them
    next_.clear();
    on_the_way_.clear();
  } else if (message->type == MoverType::kReached && on_the_way_.erase(message->bytes) > 0) {
    TellMore();
  }
}

}  // namespace tessera::server
