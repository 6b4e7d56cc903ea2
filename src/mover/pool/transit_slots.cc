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
  if (left_ > 0) TellEnd(EINTR);
  owner_ = owner;
  left_ = bytes / wire::kChunkBytes;
  if (left_ == 0) TellEnd(0);
}

void TransitSlots::GoOn() {
  for (std::uint64_t made = 0; left_ > 0 && made < kAtATurn; ++made) {
    if (const auto one = MakeOne(); !one) return TellEnd(one.error().code);
    if (--left_ == 0) TellEnd(0);
  }
}

Result<void> TransitSlots::MakeOne() {
  if (!pool_.HasPlace()) return Fail(ENOSPC, "the pool's table is full");
  auto memory = gpu_.MakeTransit();
  if (!memory) return std::unexpected(memory.error());
  const int fd = memory->fd.Get();
  const MoverMessage message = {
      .type = MoverType::kTransitMade, .program = static_cast<std::uint64_t>(owner_), .bytes = RandomNumber()};
  transit_.Add(owner_, message.bytes, std::move(*memory));
  tell_(message, fd);
  PassFault("mover.transit.made");
  return {};
}

void TransitSlots::TellEnd(int error) {
  left_ = 0;
  tell_({.type = MoverType::kTransitEnd, .error = error, .program = static_cast<std::uint64_t>(owner_)}, -1);
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
  if (owner == owner_) left_ = 0;
  transit_.GiveUp(owner);
}

}  // namespace tessera::mover
