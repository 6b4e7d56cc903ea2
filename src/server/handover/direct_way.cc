#include "server/handover/direct_way.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "server/record/log.h"
#include "wire/line.h"

namespace tessera::server {

using wire::kChunkBytes;
using wire::MoverMessage;
using wire::MoverType;

namespace {

// Slots that are asked for at a time: their descriptors wait in sockets, where there may be only so many.
constexpr std::uint64_t kAtATime = 16;

}  // namespace

DirectWay::DirectWay(const SlotHandover::Side& from, const SlotHandover::Side& to, pid_t owner, std::uint64_t bytes)
    : from_(from), to_(to), owner_(owner), left_((bytes + kChunkBytes - 1) / kChunkBytes) {
  ear_from_ = from_.link.Listen([this](const MoverMessage* message) { OnFrom(message); });
  ear_to_ = to_.link.Listen([this](const MoverMessage* message) { OnTo(message); });
  AskForMore();
}

DirectWay::~DirectWay() {
  from_.link.Unlisten(ear_from_);
  to_.link.Unlisten(ear_to_);
  for (const std::uint64_t number : on_the_way_) from_.holder.Forget(number);
  for (const auto* side : {&from_, &to_}) side->link.Tell(Of(MoverType::kTransitOver));
}

std::uint64_t DirectWay::Bytes() const { return mapped_ * kChunkBytes; }

void DirectWay::AskForMore() {
  if (settled_ || making_ || !on_the_way_.empty()) return;
  const std::uint64_t count = std::min(left_, kAtATime);
  if (count == 0) return Settle(0, "");
  left_ -= count;
  making_ = to_.link.Ready() && from_.link.Ready() && to_.link.Tell(Of(MoverType::kMakeTransit, count * kChunkBytes));
  if (!making_) Settle(ECHILD, "one of the movers");
}

void DirectWay::OnTo(const MoverMessage* message) {
  if (!message) return Settle(ECHILD, "the new GPU's mover");
  if (message->program != static_cast<std::uint64_t>(owner_)) return;
  if (message->type == MoverType::kTransitMade) return OnMade(message->bytes);
  if (message->type != MoverType::kTransitEnd) return;
  making_ = false;
  message->error != 0 ? Settle(message->error, "memory of the new GPU") : AskForMore();
}

// The next mover of either GPU gets it, too, and so does the next daemon.
void DirectWay::OnMade(std::uint64_t number) {
  const int memory = to_.slots.MemoryOf(number);
  if (settled_ || memory < 0) return;
  from_.holder.Keep(number, UniqueFd(fcntl(memory, F_DUPFD_CLOEXEC, 0)));
  if (!from_.slots.Has(number)) return Settle(EMFILE, "the slots' descriptors");
  on_the_way_.insert(number);
  if (!from_.link.Tell(Of(MoverType::kTransitFor, number), memory)) Settle(ECHILD, "the first GPU's mover");
}

void DirectWay::OnFrom(const MoverMessage* message) {
  if (!message) return Settle(ECHILD, "the first GPU's mover");
  if (message->type != MoverType::kSlotTaken || on_the_way_.erase(message->bytes) == 0) return;
  if (message->error != 0) {
    from_.holder.Forget(message->bytes);
    return Settle(message->error, "the first GPU's way to the new one");
  }
  ++mapped_;
  AskForMore();
}

void DirectWay::Settle(int error, const char* of) {
  if (std::exchange(settled_, true)) return;
  if (error == 0)
    return log::Debug("process {}: {} of its memory can go directly to the other GPU", owner_, FormatSize(Bytes()));
  log::Info("process {}: {} of its memory can go directly to the other GPU, not all: {}: {}", owner_,
            FormatSize(Bytes()), of, std::strerror(error));
}

}  // namespace tessera::server
