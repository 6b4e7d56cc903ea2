#include "server/migration/move_estimate.h"

#include <algorithm>

namespace tessera::server {
namespace {

// Bytes a second, of an H200 (docs/hardware-log.md): what the mover brings out and in, what the driver saves and
// restores; and the time that the driver needs for a program without memory.
constexpr double kMoved = 50e9, kSaved = 2e9, kRestored = 5.6e9, kAlone = 0.5;

}  // namespace

void MoveEstimate::Add(const Placement& placement, const VGpu& vgpu) {
  for (const Process* process : vgpu.processes) {
    const std::uint64_t pinned = placement.PinnedBytes(*process), resident = placement.ResidentBytes(*process);
    moved += resident - std::min(resident, pinned);
    saved += pinned;
  }
}

double MoveEstimate::Seconds(std::size_t rounds) const {
  if (rounds == 0) return 0;
  const auto by_driver = static_cast<double>(saved);
  return kAlone * static_cast<double>(rounds) + 2 * static_cast<double>(moved) / kMoved + by_driver / kSaved +
         by_driver / kRestored;
}

}  // namespace tessera::server
