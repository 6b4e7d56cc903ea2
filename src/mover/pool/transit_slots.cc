#include "mover/pool/transit_slots.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "wire/line.h"

namespace tessera::mover {

using wire::MoverMessage;
using wire::MoverType;

namespace {

// Slots that are made in one turn of the loop: others wait meanwhile.
constexpr std::uint64_t kAtATurn = 4;

}  // namespace

bool TransitSlots::On(const MoverMessage& message, UniqueFd& fd) {
  const auto owner = static_cast<pid_t>(message.program);
  switch (message.type) {
    case MoverType::kMakeTransit:
      Make(owner, message.bytes);
      return true;
    case MoverType::kTransitFor: {
      const auto taken = Take(message, std::move(fd));
      PassFault("mover.transit.taken");
      tell_({.type = MoverType::kSlotTaken, .error = taken ? 0 : taken.error().code, .bytes = message.bytes}, -1);
      return true;
    }
    case MoverType::kTransitOver:
      End(owner);
      return true;
    default:
      return false;
  }
}

void TransitSlots::Make(pid_t owner, std::uint64_t bytes) {
  const std::uint64_t count = bytes / wire::kChunkBytes;
  count > 0 ? (void)orders_.push_back({owner, count}) : TellEnd(owner, 0);
}

void TransitSlots::GoOn() {
  for (std::uint64_t made = 0; !orders_.empty() && made < kAtATurn; ++made) {
    Order& order = orders_.front();
    const auto one = MakeOne(order.owner);
    if (one && --order.left > 0) continue;
    const pid_t owner = order.owner;
    orders_.pop_front();
    TellEnd(owner, one ? 0 : one.error().code);
  }
}

Result<void> TransitSlots::MakeOne(pid_t owner) {
  if (!pool_.HasPlace()) return Fail(ENOSPC, "the pool's table is full");
  auto memory = gpu_.MakeTransit();
  if (!memory) return std::unexpected(memory.error());
  const int fd = memory->fd.Get();
  const MoverMessage message = {
      .type = MoverType::kTransitMade, .program = static_cast<std::uint64_t>(owner), .bytes = RandomNumber()};
  transit_.Add(owner, message.bytes, std::move(*memory));
  tell_(message, fd);
  PassFault("mover.transit.made");
  return {};
}

void TransitSlots::TellEnd(pid_t owner, int error) {
  tell_({.type = MoverType::kTransitEnd, .error = error, .program = static_cast<std::uint64_t>(owner)}, -1);
}

// Mapped at once: the program still works.
Result<void> TransitSlots::Take(const MoverMessage& message, UniqueFd fd) {
  if (!fd || message.bytes == 0) return Fail(EINVAL, "it is no slot");
  if (!pool_.HasPlace()) return Fail(ENOSPC, "the pool's table is full");
  HostMemory memory = {.fd = std::move(fd), .transit = true};
  if (auto reached = gpu_.Reach(memory); !reached) return reached;
  transit_.Add(static_cast<pid_t>(message.program), message.bytes, std::move(memory));
  return {};
}

void TransitSlots::End(pid_t owner) {
  std::erase_if(orders_, [owner](const Order& order) { return order.owner == owner; });
  transit_.GiveUp(owner);
}

}  // namespace tessera::mover
