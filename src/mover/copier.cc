#include "mover/copier.h"

#include "base/fault.h"
#include "mover/program.h"

namespace tessera::mover {

// Batch and program own one another while a copy is under way.
Copier::~Copier() {
  for (auto& queue : under_way_) {
    for (const auto& batch : queue) batch->program.reset();
  }
}

Result<void> Copier::Start(const std::shared_ptr<Batch>& batch) {
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
  if (!finished.empty()) PassFault("mover.copy.done");
  return finished;
}

}  // namespace tessera::mover
