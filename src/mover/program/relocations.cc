#include "mover/program/relocations.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

namespace {

// Chunks of one copy, and of all that are under way: enough that the copy engine never waits.
constexpr std::size_t kAtOnce = 4, kMostMoving = 24;

}  // namespace

bool Relocations::LiesInPlace(const Stored& stored) const {
  return stored.tier == Stored::Tier::kParked && place_.pool.MemoryOf(stored.slot).transit;
}

std::uint64_t Relocations::InPlace() const {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      stored_, [this](const auto& each) { return !moving_.contains(each.first) && LiesInPlace(each.second); }));
}

void Relocations::Starve() {
  if (!Busy() && InPlace() > 0 && place_.FreeFor(context_.domain) == 0) wanted_ = false;
}

void Relocations::GoOn() {
  if (!wanted_) return;
  std::vector<std::uint64_t> chunks;
  for (const auto& [chunk, stored] : stored_) {
    if (moving_.size() + kAtOnce > kMostMoving) return;
    if (moving_.contains(chunk) || !LiesInPlace(stored)) continue;
    chunks.push_back(chunk);
    if (chunks.size() < std::min<std::uint64_t>(kAtOnce, place_.FreeFor(context_.domain))) continue;
    if (!Start(std::exchange(chunks, {}))) return;
  }
  if (!chunks.empty()) (void)Start(chunks);
}

// False: there is no slot, or the memory cannot be had.
bool Relocations::Start(const std::vector<std::uint64_t>& chunks) {
  auto batch = std::make_shared<Batch>();
  batch->relocates = true;
  std::vector<UniqueFd> fds;
  std::vector<ChunkPart> parts;
  for (const std::uint64_t chunk : chunks) {
    const auto slot = place_.FreeFor(context_.domain) > 0 ? place_.pool.Take(context_.domain) : std::nullopt;
    if (!slot) break;
    const Stored& stored = stored_.At(chunk);
    fds.emplace_back(fcntl(place_.pool.MemoryOf(stored.slot).fd.Get(), F_DUPFD_CLOEXEC, 0));
    parts.push_back({.units = stored.units});
    batch->entries.push_back({.chunk = chunk, .slot = *slot, .from = stored.slot});
  }
  if (batch->entries.empty()) return false;
  auto window = place_.gpu.Import(Gpu::On::kAny, fds, parts);
  if (!window) {
    for (const Batch::Entry& entry : batch->entries) place_.pool.GiveBack(entry.slot);
    wanted_ = false;  // until the daemon says it again
    return false;
  }
  batch->window = std::move(*window);
  batch->program = context_.program.shared_from_this();
  for (const Batch::Entry& entry : batch->entries) {
    moving_.insert(entry.chunk);
    place_.pool.BeginRead(entry.from);
  }
  if (const auto started = place_.copier.Start(batch); !started) place_.broken = started.error();
  return true;
}

// At each moment some slot has the chunk's key. The program may have dropped it meanwhile, or have ended.
void Relocations::OnCopied(const std::shared_ptr<Batch>& batch) {
  batch->window.reset();
  Pool& pool = place_.pool;
  for (const Batch::Entry& entry : batch->entries) {
    moving_.erase(entry.chunk);
    Stored* stored = stored_.Find(entry.chunk);
    if (stored != nullptr && stored->slot == entry.from && LiesInPlace(*stored)) {
      pool.GiveUnder(pool.EntryOf(entry.from).key, entry.slot, context_.domain, context_.pid);
      PassFault("mover.relocated");
      stored->slot = entry.slot;
      pool.GiveBack(entry.from);
    } else {
      pool.GiveBack(entry.slot);
    }
    pool.EndRead(entry.from);
  }
}

}  // namespace tessera::mover
