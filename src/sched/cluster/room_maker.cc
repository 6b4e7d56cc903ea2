#include "sched/cluster/room_maker.h"

namespace tessera::sched {
namespace {

// Whether the newcomer would fit if the pod were not there.
bool WouldFit(const NodeRoom& room, const Demand& newcomer, const Demand& pod, GpuSet gpus) {
  if (newcomer.cpu > room.cpu + pod.cpu || newcomer.memory > room.memory + pod.memory) return false;
  if (newcomer.gpus == 0) return true;
  if (!room.Allows(newcomer)) return false;
  int missing = newcomer.gpus;
  for (int gpu = 0; gpu < room.gpus && missing > 0; ++gpu) {
    const std::int32_t more = (gpus >> gpu & 1) != 0 ? pod.gpu_milli : 0;
    missing -= room.gpu_milli[gpu] + more >= newcomer.gpu_milli;
  }
  return missing == 0;
}

}  // namespace

RoomMaker::RoomMaker(const FleetValue& value, double most_pct)
    : value_(value), most_pct_(most_pct), chooser_(FleetPolicy::kTessera, none_, value, 0) {}

bool RoomMaker::MakeRoom(Fleet& fleet, std::size_t demand) {
  if (static_cast<double>(moves_ + 1) > most_pct_ / 100 * static_cast<double>(fleet.pods())) return false;
  if (demand >= in_vain_at_.size()) in_vain_at_.resize(demand + 1);
  // What has come since then took room, and to move that away would only give it back.
  if (in_vain_at_[demand] == fleet.departures()) return false;
  const auto move = Best(fleet, demand);
  if (!move) {
    in_vain_at_[demand] = fleet.departures();
    return false;
  }
  fleet.Move(move->pod, move->to);
  ++moves_;
  return true;
}

std::optional<RoomMaker::Move> RoomMaker::Best(const Fleet& fleet, std::size_t demand) {
  const Demand& newcomer = fleet.DemandOf(demand);
  std::optional<Move> best;
  for (std::size_t node = 0; node < fleet.nodes(); ++node) {
    const NodeRoom& room = fleet.RoomOf(node);
    // No pod that leaves a GPU would be enough.
    if (newcomer.gpus > 0 && (!room.Allows(newcomer) || room.TotalMilli() + kGpuMilli < newcomer.TotalMilli()))
      continue;
    for (const std::size_t pod : fleet.PodsOn(node)) {
      const auto& [number, spot] = fleet.PodOf(pod);
      const Demand& its = fleet.DemandOf(number);
      if (its.gpus != 1 || !WouldFit(room, newcomer, its, spot.gpus)) continue;
      const auto move = Away(fleet, pod, newcomer);
      if (move && (!best || move->worth > best->worth)) best = move;
    }
  }
  return best;
}

std::optional<RoomMaker::Move> RoomMaker::Away(const Fleet& fleet, std::size_t pod, const Demand& newcomer) {
  const auto& [number, spot] = fleet.PodOf(pod);
  const Refuge& refuge = RefugeFor(fleet, number);
  const auto to = refuge.first == spot.node ? refuge.second : refuge.first;
  if (!to) return std::nullopt;
  const Suit& suit = *chooser_.SuitIn(fleet, fleet.StateOf(*to), number);
  NodeRoom after = fleet.RoomOf(spot.node);
  const double before = value_.Of(after);
  after.Give(fleet.DemandOf(number), spot.gpus);
  after.Take(newcomer, after.Tightest(newcomer));
  return Move{pod, {*to, suit.gpus}, value_.Of(after) - before + suit.score};
}

const RoomMaker::Refuge& RoomMaker::RefugeFor(const Fleet& fleet, std::size_t demand) {
  if (refuges_at_ != fleet.changes()) {
    refuges_.clear();
    refuges_at_ = fleet.changes();
  }
  if (demand >= refuges_.size()) refuges_.resize(demand + 1);
  Refuge& refuge = refuges_[demand];
  if (refuge.known) return refuge;
  refuge.known = true;
  double first = 0, second = 0;
  for (std::size_t node = 0; node < fleet.nodes(); ++node) {
    const Suit* const suit = chooser_.SuitIn(fleet, fleet.StateOf(node), demand);
    if (suit == nullptr) continue;
    if (!refuge.first || suit->score > first) {
      refuge.second = refuge.first;
      second = first;
      refuge.first = node;
      first = suit->score;
    } else if (!refuge.second || suit->score > second) {
      refuge.second = node;
      second = suit->score;
    }
  }
  return refuge;
}

}  // namespace tessera::sched
