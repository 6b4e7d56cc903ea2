#include "pager/line/line_agent.h"

#include <algorithm>
#include <utility>

#include "base/uncancelled.h"

namespace tessera::pager {

using wire::LineType;

namespace {

// How many chunks are in host memory.
LineAnswer InHost(const Region& region) {
  LineAnswer answer{.message = {.type = LineType::kParked}, .fds = {}};
  for (const std::size_t i : region.WithMemory()) answer.message.room += region[i].InHost() ? 1 : 0;
  return answer;
}

}  // namespace

LineAgent::LineAgent(Heap& heap) : moves_(heap.Chunks(), heap.Heat()) {}

// The indices of the chunks that a message names; empty if it names one that `is` not true of, or one twice.
template <typename Is>
ChunkMoves::Indices LineAgent::Named(const Message& message, Is is) const {
  const Region& region = moves_.chunks.large();
  ChunkMoves::Indices indices;
  for (const std::uint64_t address : std::span(message.chunk, message.count)) {
    const auto index = region.IndexAt(address);
    if (!index || !is(region[*index]) || std::ranges::find(indices, *index) != indices.end()) return {};
    indices.push_back(*index);
  }
  return indices;
}

bool LineAgent::On(const Message& message, std::span<UniqueFd> fds, std::vector<Answer>* answers) {
  if (fds.size() != wire::DescriptorsOf(message)) return false;
  const UncancelledLock lock(moves_.chunks.mutex());
  if (moves_.chunks.memory().stopped()) return false;
  TakeDroppedLocked(answers);  // first: a chunk may be stored again after it was dropped
  // Looked at after what is offered, or wanted, counts as unsafe: no copy may begin that the other side does not see.
  return Act(message, fds, answers) && !moves_.chunks.room().Released();
}

bool LineAgent::Act(const Message& message, std::span<UniqueFd> fds, std::vector<Answer>* answers) {
  const auto offered = Named(message, [](const Chunk& chunk) { return chunk.offered; });
  const auto wanted = Named(message, [](const Chunk& chunk) { return chunk.wanted; });
  const bool all_offered = offered.size() == message.count, all_wanted = wanted.size() == message.count;
  switch (message.type) {
    case LineType::kEvict:
      answers->push_back(moves_.Offer(message.count, message.room, MonotonicNow()));
      return true;
    case LineType::kShow:
      if (message.room != 0) answers->push_back(moves_.Show(message.count, message.room));
      return message.room != 0;
    case LineType::kSqueeze:
      answers->push_back(moves_.OfferHoles(message.count));
      return true;
    case LineType::kLoad:
      answers->push_back(moves_.Want(message.count, message.room, message.holes, MonotonicNow()));
      return true;
    case LineType::kStored:
    case LineType::kStoredAway:
      if (all_offered) answers->push_back(moves_.Store(message, offered, fds));
      return all_offered;
    case LineType::kLoaded:
      if (all_wanted) answers->push_back(moves_.Load(message, wanted));
      return all_wanted;
    case LineType::kKeep:
      moves_.Keep(offered);
      return all_offered;
    case LineType::kStay:
      moves_.LeaveOut(wanted);
      return all_wanted;
    case LineType::kSettle:
      answers->push_back(moves_.Settle());
      return true;
    case LineType::kFiled:
      answers->push_back(moves_.Release(message));
      return true;
    case LineType::kRead:
    case LineType::kReadAway:
      answers->push_back(moves_.Hold(message, fds));
      return true;
    case LineType::kPark:
      answers->push_back(InHost(moves_.chunks.large()));
      return true;
    case LineType::kAdopted:
      return OnAdopted(message);
    default:
      return false;
  }
}

// ---- without a question ----

void LineAgent::TakeDropped(std::vector<Answer>* answers) {
  const UncancelledLock lock(moves_.chunks.mutex());
  TakeDroppedLocked(answers);
}

void LineAgent::TakeDroppedLocked(std::vector<Answer>* answers) {
  const std::vector<std::uint64_t> dropped = std::exchange(moves_.chunks.dropped(), {});
  for (std::size_t n = 0; n < dropped.size(); n += wire::kMostChunks) {
    Answer answer{.message = {.type = LineType::kDropped}, .fds = {}};
    answer.message.count = static_cast<std::uint32_t>(std::min<std::size_t>(wire::kMostChunks, dropped.size() - n));
    std::copy_n(dropped.begin() + static_cast<std::ptrdiff_t>(n), answer.message.count, answer.message.chunk);
    answers->push_back(std::move(answer));
  }
}

// ---- another mover ----

void LineAgent::Lost() {
  const UncancelledLock lock(moves_.chunks.mutex());
  moves_.Abandon();
  moves_.chunks.dropped().clear();
}

void LineAgent::Adopt(std::vector<Answer>* answers) {
  const UncancelledLock lock(moves_.chunks.mutex());
  NameKeys(LineType::kAdoptFiled, true, answers);
  NameKeys(LineType::kAdopt, false, answers);
}

// Names the chunks that a new mover does not know yet, with their keys: those that are away, or those in host memory.
void LineAgent::NameKeys(LineType type, bool away, std::vector<Answer>* answers) {
  Region& region = moves_.chunks.large();
  Answer answer{.message = {.type = type}, .fds = {}};
  for (const std::size_t i : region.WithMemory()) {
    Chunk chunk = region[i];
    const bool there = away ? chunk.backing == Backing::kAway : chunk.InHost();
    if (!there || chunk.key == 0 || chunk.known || chunk.adopting) continue;
    // A chunk that is in no slot stays where it is, and the mover answers so. One that is away, and that no mover has,
    // is lost; the mover knows it all the same, to say so whenever it is asked for.
    (away ? chunk.known : chunk.adopting) = true;
    moves_.chunks.Put(region, i, chunk);
    answer.message.chunk[answer.message.count] = region.range.AddressOf(i);
    answer.message.key[answer.message.count++] = chunk.key;
    if (answer.message.count == wire::kMostChunks)
      answers->push_back(std::exchange(answer, {.message = {.type = type}, .fds = {}}));
  }
  if (answer.message.count > 0 || !away) answers->push_back(std::move(answer));
}

// A chunk that was freed since it was named is dropped now: the mover did not know it when it was freed.
bool LineAgent::OnAdopted(const Message& message) {
  Region& region = moves_.chunks.large();
  const auto indices = Named(message, [](const Chunk& chunk) { return chunk.adopting; });
  if (indices.empty() || indices.size() != message.count) return false;
  for (std::size_t n = 0; n < indices.size(); ++n) {
    Chunk chunk = region[indices[n]];
    const bool found = message.key[n] != 0;
    chunk.adopting = false;
    if (chunk.InHost()) {
      chunk.known = found;
      if (!found) chunk.key = 0;
    } else if (found) {
      moves_.chunks.dropped().push_back(message.chunk[n]);
    }
    moves_.chunks.Put(region, indices[n], chunk);
  }
  return true;
}

}  // namespace tessera::pager
