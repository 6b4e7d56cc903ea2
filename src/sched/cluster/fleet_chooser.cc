#include "sched/cluster/fleet_chooser.h"

namespace tessera::sched {
namespace {

// Beyond it, all is forgotten and computed again: about 200 MB.
constexpr std::size_t kMostKnown = 8'000'000;

}  // namespace

const Suit* FleetChooser::SuitIn(const Fleet& fleet, std::size_t state, std::size_t demand) {
  Known& known = KnownOf(demand, state)[state];
  if (known.is == Known::Is::kUnknown) {
    const NodeRoom& room = fleet.State(state);
    const Demand& wanted = fleet.DemandOf(demand);
    known.is = room.Fits(wanted) ? Known::Is::kFits : Known::Is::kDoesNotFit;
    if (known.is == Known::Is::kFits) known.suit = SuitOf(policy_, room, wanted, fragmentation_, value_);
  }
  return known.is == Known::Is::kFits ? &known.suit : nullptr;
}

// With room for the state.
std::vector<FleetChooser::Known>& FleetChooser::KnownOf(std::size_t demand, std::size_t state) {
  if (demand >= known_.size()) known_.resize(demand + 1);
  if (state < known_[demand].size()) return known_[demand];
  const std::size_t size = state + state / 2 + 64;
  known_size_ += size - known_[demand].size();
  if (known_size_ > kMostKnown) {
    for (auto& each : known_) each = std::vector<Known>();  // {} would keep its memory
    known_size_ = size;
  }
  known_[demand].resize(size);
  return known_[demand];
}

std::optional<FleetSpot> FleetChooser::Choose(const Fleet& fleet, std::size_t demand) {
  if (demand >= nowhere_since_.size()) nowhere_since_.resize(demand + 1);
  if (nowhere_since_[demand] == fleet.departures()) return std::nullopt;
  const auto spot = policy_ == FleetPolicy::kRandom ? Any(fleet, demand) : Best(fleet, demand);
  if (!spot) nowhere_since_[demand] = fleet.departures();
  return spot;
}

std::optional<FleetSpot> FleetChooser::Best(const Fleet& fleet, std::size_t demand) {
  std::optional<FleetSpot> best;
  double best_score = 0;
  for (std::size_t node = 0; node < fleet.nodes(); ++node) {
    const Suit* const suit = SuitIn(fleet, fleet.StateOf(node), demand);
    if (suit == nullptr || (best && suit->score <= best_score)) continue;
    best = {node, suit->gpus};
    best_score = suit->score;
  }
  return best;
}

std::optional<FleetSpot> FleetChooser::Any(const Fleet& fleet, std::size_t demand) {
  std::vector<std::size_t> fit;
  for (std::size_t node = 0; node < fleet.nodes(); ++node) {
    if (SuitIn(fleet, fleet.StateOf(node), demand) != nullptr) fit.push_back(node);
  }
  if (fit.empty()) return std::nullopt;
  const std::size_t node = fit[dice_.Below(fit.size())];
  const NodeRoom& room = fleet.RoomOf(node);
  const Demand& wanted = fleet.DemandOf(demand);
  if (!wanted.IsPart()) return FleetSpot{node, room.Tightest(wanted)};
  std::vector<GpuSet> gpus;
  for (int gpu = 0; gpu < room.gpus; ++gpu) {
    if (room.gpu_milli[gpu] >= wanted.gpu_milli) gpus.push_back(GpuSet{1} << gpu);
  }
  return FleetSpot{node, gpus[dice_.Below(gpus.size())]};
}

}  // namespace tessera::sched
