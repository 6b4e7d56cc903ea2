#include "mover/program/copier.h"

#include <algorithm>

#include "base/fault.h"
#include "mover/program/program.h"

namespace tessera::mover {

namespace {

// Chunks. Enough that copies in never wait for the room that copies out make.
constexpr std::size_t kMostAhead = 8;

}  // namespace

// Batch and program own one another while a copy is under way.
Copier::~Copier() {
  for (auto* queue : {&under_way_[0], &under_way_[1], &held_}) {
    for (const auto& batch : *queue) batch->program.reset();
  }
}

Result<void> Copier::Start(const std::shared_ptr<Batch>& batch) {
  const bool waits = ComesIn() && (ahead_ >= kMostAhead || !held_.empty());
  if (batch->direction == Direction::kIn || !waits) return StartNow(batch);
  held_.push_back(batch);
  return {};
}

Result<void> Copier::StartNow(const std::shared_ptr<Batch>& batch) {
  const std::size_t chunks = batch->entries.size();
  if (batch->direction == Direction::kIn) {
    ahead_ -= std::min(ahead_, chunks);
  } else if (ComesIn()) {
    ahead_ += chunks;
  }
  std::vector<const HostMemory*> host;
  for (const Batch::Entry& entry : batch->entries) host.push_back(&pool_.MemoryOf(entry.slot));
  const auto started = gpu_.StartCopy(batch->direction, *batch->window, host);
  if (!started) return started;
  under_way_[static_cast<int>(batch->direction)].push_back(batch);
  PassFault("mover.copy.started");
  return {};
}

Result<std::vector<std::shared_ptr<Batch>>> Copier::Finished() {
  std::vector<std::shared_ptr<Batch>> finished;
  for (auto& queue : under_way_) {
    while (!queue.empty()) {
      const auto copied = gpu_.Copied(*queue.front()->window);
      if (!copied) return std::unexpected(copied.error());
      if (!*copied) break;
      finished.push_back(std::move(queue.front()));
      queue.pop_front();
    }
  }
  if (!ComesIn()) ahead_ = 0;
  while (!held_.empty() && ahead_ < kMostAhead) {
    const auto batch = std::move(held_.front());
    held_.pop_front();
    if (const auto started = StartNow(batch); !started) return std::unexpected(started.error());
  }
  if (!finished.empty()) PassFault("mover.copy.done");
  return finished;
}

}  // namespace tessera::mover
