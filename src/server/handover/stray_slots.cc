#include "server/handover/stray_slots.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"

namespace tessera::server {
namespace {

constexpr Nanos kAskTravellersEvery = kSecond / 10;

}  // namespace

StraySlots::StraySlots(EventLoop& loop, std::vector<Pool> pools, std::function<bool(pid_t)> travels)
    : pools_(std::move(pools)), travels_(std::move(travels)), timer_(loop, [this] { Look(); }) {
  for (const Pool& pool : pools_) {
    ears_.push_back(pool.link->Listen([this](const wire::MoverMessage* message) {
      if (!message || message->type != wire::MoverType::kClaimed) return;
      claimed_.insert(static_cast<pid_t>(message->bytes));
      timer_.Arm(MonotonicNow());
    }));
  }
}

StraySlots::~StraySlots() {
  for (std::size_t i = 0; i < pools_.size(); ++i) pools_[i].link->Unlisten(ears_[i]);
}

void StraySlots::Look() {
  std::erase_if(claimed_, [this](pid_t owner) {
    if (travels_(owner)) return false;
    LetGoOf(owner);
    return true;
  });
  if (!claimed_.empty()) timer_.Arm(MonotonicNow() + kAskTravellersEvery);
}

// A program that is nowhere may have ended; what it has comes free with it.
void StraySlots::LetGoOf(pid_t owner) const {
  const auto uses = [owner](const Pool& pool) { return pool.uses(owner); };
  if (std::ranges::none_of(pools_, uses)) return;
  for (const Pool& pool : pools_) {
    const auto side = uses(pool) ? std::nullopt : pool.side();
    const auto strays = side ? side->slots.LentOf(owner) : Result<std::vector<wire::SwapEntry>>();
    std::set<std::uint64_t> numbers;
    if (strays) std::ranges::transform(*strays, std::inserter(numbers, numbers.end()), &wire::SwapEntry::memory);
    if (side) LetGo(*side, numbers);
  }
}

}  // namespace tessera::server
