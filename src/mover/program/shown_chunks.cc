#include "mover/program/shown_chunks.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

using wire::LineType;
using wire::MoverType;

namespace {

// Questions ahead of the program's answers: it works meanwhile.
constexpr std::size_t kMostAsked = 2;

}  // namespace

void ShownChunks::Show(std::uint64_t chunks) {
  if (chunks == 0) {
    left_ = 0;
    return GiveUp();
  }
  left_ = chunks;
  pending_ = true;
  if (!line_.open()) End(EPIPE);
}

void ShownChunks::GoOn() {
  while (left_ > 0 && questions_.Count(LineType::kShow) < kMostAsked) {
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(left_, wire::kMostChunks));
    line_.Send({.type = LineType::kShow, .count = count, .room = round_});
    questions_.Expect({.type = LineType::kShow}, context_.place.now);
    left_ -= count;
  }
  if (pending_ && left_ == 0 && !Asks()) End(0);
}

Result<void> ShownChunks::OnAnswer(LinePacket& packet) {
  const auto question = questions_.Answered(LineType::kShow, context_.place.now);
  if (!question) return std::unexpected(question.error());
  const wire::LineMessage& message = packet.message;
  if (message.count == 0) left_ = 0;
  for (std::uint32_t n = 0; n < message.count; ++n) {
    if (!IsWhole(message, n)) return Fail(EPROTO, "it showed a chunk that is not whole");
    if (slots_.contains(message.chunk[n])) continue;
    if (const auto slot = context_.LeaveSlot(std::move(packet.fds[n]))) slots_[message.chunk[n]] = {.slot = *slot};
  }
  PassFault("mover.shown.told");
  return {};
}

bool ShownChunks::OnKept(std::uint64_t number, int error) {
  const auto found = std::ranges::find_if(slots_, [&](const auto& each) {
    return !each.second.kept && context_.place.pool.EntryOf(each.second.slot).memory == number;
  });
  if (found == slots_.end()) return false;
  found->second.kept = error == 0;
  if (error != 0) context_.place.pool.GiveBack(slots_.extract(found).mapped().slot);
  return true;
}

std::optional<Slot> ShownChunks::Take(std::uint64_t chunk) {
  const auto found = slots_.find(chunk);
  if (found == slots_.end() || !found->second.kept) return {};
  return slots_.extract(found).mapped().slot;
}

// The program does not say that it was shown any more, as the round is over.
void ShownChunks::GiveUp() {
  for (const auto& [chunk, shown] : std::exchange(slots_, {})) context_.place.pool.GiveBack(shown.slot);
  if (++round_ == 0) round_ = 1;
}

void ShownChunks::End(int error) {
  pending_ = false;
  if (!context_.gone)
    context_.place.tell(
        {.type = MoverType::kShownAll, .error = error, .program = static_cast<std::uint64_t>(context_.pid)});
}

void ShownChunks::EndLine() {
  left_ = 0;
  if (pending_) End(EPIPE);
  GiveUp();
}

}  // namespace tessera::mover
