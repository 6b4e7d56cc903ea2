#include "server/time/space_server.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sched/shares/admission.h"

namespace tessera::server {
namespace {

// Ids of spaces at the SteeringServer, beyond those of vGPUs.
constexpr sched::VgpuId kFirstSpace = 1u << 31;

// Shares of a space as a whole: a request of the time in which all requests of its vGPUs can be served, the best class
// and the greatest weight. It has no limit: limits hold inside.
sched::Shares Together(const std::map<sched::VgpuId, sched::Shares>& members) {
  std::vector<sched::Shares> all;
  sched::Shares together{.weight = 1, .priority = 15};
  for (const auto& [id, shares] : members) {
    all.push_back(shares);
    together.weight = std::max(together.weight, shares.weight);
    together.priority = std::min(together.priority, shares.priority);
  }
  together.request_pct = std::min(100.0, sched::TimeNeeded(all));
  return together;
}

// Parts of the GPU's time as parts of the time of a space that has `part` of that.
sched::Shares Inside(sched::Shares shares, double part) {
  shares.limit_pct = std::min(100.0, shares.limit_pct / part);
  shares.request_pct = std::min(shares.limit_pct, shares.request_pct / part);
  return shares;
}

constexpr double kSamePart = 0.03;  // of its part: a smaller change changes nothing inside
constexpr double kLeastPart = 0.01;

}  // namespace

struct SpaceServer::Space {
  Space(std::uint32_t number, SharedPage leaders_page, const sched::Config& config, Nanos in_flight)
      : number(number), page(std::move(leaders_page)), tokens(config, in_flight) {}

  Id Entity() const { return kFirstSpace | number; }
  // The time of its tokens.
  Nanos At(Nanos now) const { return (stands_since != 0 ? stands_since : now) - stood; }
  // The GPU's time that it had.
  double Had(Nanos now) const { return had + part * static_cast<double>(At(now) - had_at); }
  void Count(Nanos now) {
    had = Had(now);
    had_at = At(now);
  }
  void Stand(bool stands, Nanos now) {
    if (stands == (stands_since != 0)) return;
    if (!stands) stood += now - stands_since;
    stands_since = stands ? now : 0;
  }

  const std::uint32_t number;
  SharedPage page;                     // nobody maps it
  std::unique_ptr<GateRecord> leader;  // of the MPS server; null: it is not known
  TokenServer tokens;
  std::map<Id, sched::Shares> members;
  std::vector<const GateRecord*> gates;
  double part = 1;         // of the GPU's time, by which its tokens' shares are counted
  double had = 0;          // of the GPU's time, in ns, until
  Nanos had_at = 0;        // this time of its tokens
  bool active = false;     // as steering was told
  Nanos stood = 0;         // so long it was off the GPU with work
  Nanos stands_since = 0;  // 0: it is not
};

SpaceServer::SpaceServer(std::unique_ptr<SteeringServer> steering, const sched::Config& tokens, Nanos in_flight,
                         const ChannelServer& channels)
    : steering_(std::move(steering)), config_(tokens), in_flight_(in_flight), channels_(channels) {}

SpaceServer::~SpaceServer() = default;

SpaceServer::Space* SpaceServer::SpaceOf(Id vgpu) const {
  for (const auto& [number, space] : spaces_) {
    if (space->members.contains(vgpu)) return space.get();
  }
  return nullptr;
}

SpaceServer::Space* SpaceServer::SpaceOf(const GateRecord& gate) const {
  const auto found = gates_.find(&gate);
  return found == gates_.end() ? nullptr : found->second.space;
}

// ---- vGPUs ----

Result<void> SpaceServer::Set(Id vgpu, const sched::Shares& shares, Nanos now) {
  const std::uint32_t number = shares.space.number;
  if (number == 0) {
    auto set = steering_->Set(vgpu, shares, now);
    Mind(now);
    return set;
  }
  auto found = spaces_.find(number);
  if (found == spaces_.end()) {
    auto page = SharedPage::Create(0);
    if (!page) return std::unexpected(page.error());
    found = spaces_.emplace(number, std::make_unique<Space>(number, std::move(*page), config_, in_flight_)).first;
  }
  Space& space = *found->second;
  auto set = SetIn(space, vgpu, shares, now);
  if (space.members.empty()) spaces_.erase(found);
  Mind(now);
  return set;
}

Result<void> SpaceServer::SetIn(Space& space, Id vgpu, const sched::Shares& shares, Nanos now) {
  if (auto ok = sched::Validate(shares); !ok) return ok;
  const bool first = space.members.empty();
  const std::map<Id, sched::Shares> before = space.members;
  space.members[vgpu] = shares;
  auto set = steering_->Set(space.Entity(), Together(space.members), now);
  // Admission inside is about parts of the GPU's time.
  for (const auto& [id, its] : before) (void)space.tokens.Set(id, its, space.At(now));
  if (set) set = space.tokens.Set(vgpu, shares, space.At(now));
  if (set) {
    Rescale(space, now);
    FollowLeader(space, now);
    return {};
  }
  space.members = before;
  Rescale(space, now);
  if (!first) {
    (void)steering_->Set(space.Entity(), Together(before), now);  // it was admitted once
  } else {
    steering_->Remove(space.Entity(), now);
  }
  return set;
}

void SpaceServer::Remove(Id vgpu, Nanos now) {
  Space* space = SpaceOf(vgpu);
  if (!space) {
    steering_->Remove(vgpu, now);
    return Mind(now);
  }
  std::erase_if(space->gates, [this, vgpu](const GateRecord* gate) { return gates_.at(gate).vgpu == vgpu; });
  std::erase_if(gates_, [vgpu](const auto& entry) { return entry.second.vgpu == vgpu; });
  space->tokens.Remove(vgpu, space->At(now));
  space->members.erase(vgpu);
  if (!space->members.empty()) {
    (void)steering_->Set(space->Entity(), Together(space->members), now);
    return Settle(*space, now, now);
  }
  if (space->leader) steering_->Leave(*space->leader, now);
  steering_->Remove(space->Entity(), now);
  spaces_.erase(space->number);
  Mind(now);
}

// ---- processes ----

void SpaceServer::Join(Id vgpu, GateRecord& gate, Nanos now) {
  Space* space = SpaceOf(vgpu);
  if (!space) {
    steering_->Join(vgpu, gate, now);
    return Mind(now);
  }
  space->tokens.Join(vgpu, gate, space->At(now));
  space->gates.push_back(&gate);
  gates_[&gate] = {space, vgpu};
  FollowLeader(*space, now);
  Settle(*space, now, now);
}

void SpaceServer::Leave(GateRecord& gate, Nanos now) {
  Space* space = SpaceOf(gate);
  if (!space) {
    steering_->Leave(gate, now);
    return Mind(now);
  }
  space->tokens.Leave(gate, space->At(now));
  std::erase(space->gates, &gate);
  gates_.erase(&gate);
  Settle(*space, now, now);
}

void SpaceServer::Abandon(Nanos now) {
  Seal();
  steering_->Abandon(now);
  for (const auto& [number, space] : spaces_) {
    space->tokens.Abandon(space->At(now));
    space->gates.clear();
  }
  gates_.clear();
}

void SpaceServer::Wants(GateRecord& gate, Nanos now, bool waits) {
  Space* space = SpaceOf(gate);
  if (!space) {
    steering_->Wants(gate, now, waits);
    return Mind(now);
  }
  space->tokens.Wants(gate, space->At(now), waits);
  Settle(*space, now, now);
}

void SpaceServer::Idle(GateRecord& gate, Nanos now, Nanos since) {
  Space* space = SpaceOf(gate);
  if (!space) {
    steering_->Idle(gate, now, since);
    return Mind(now);
  }
  space->tokens.Idle(gate, space->At(now), since - space->stood);
  Settle(*space, now, since);
}

void SpaceServer::Released(GateRecord& gate, Nanos now, Nanos drained_at, std::uint32_t epoch) {
  Space* space = SpaceOf(gate);
  if (!space) {
    steering_->Released(gate, now, drained_at, epoch);
    return Mind(now);
  }
  space->tokens.Released(gate, space->At(now), drained_at - space->stood, epoch);
  Settle(*space, now, drained_at);
}

void SpaceServer::Hold(GateRecord& gate, bool held, Nanos now) {
  Space* space = SpaceOf(gate);
  if (!space) {
    steering_->Hold(gate, held, now);
    return Mind(now);
  }
  space->tokens.Hold(gate, held, space->At(now));
  Settle(*space, now, now);
}

void SpaceServer::ChannelsChanged(GateRecord& gate, GateRecord::Stop stop, Nanos now) {
  if (SpaceOf(gate)) {
    gate.stop = stop;  // its gate stops it, whatever is known
    return;
  }
  steering_->ChannelsChanged(gate, stop, now);
  Mind(now);
}

// A space stands if all its vGPUs must.
void SpaceServer::SetAside(const std::set<Id>& vgpus, Nanos now) {
  std::set<Id> aside = vgpus;
  for (const auto& [number, space] : spaces_) {
    const auto stands = [&](const auto& member) { return vgpus.contains(member.first); };
    if (std::ranges::all_of(space->members, stands)) aside.insert(space->Entity());
  }
  steering_->SetAside(aside, now);
  Mind(now);
}

void SpaceServer::LeadersChanged(Nanos now) {
  for (const auto& [number, space] : spaces_) {
    FollowLeader(*space, now);
    // Channels that were made since the last slice have the driver's.
    if (space->leader) steering_->ChannelsChanged(*space->leader, space->leader->stop, now);
  }
  Mind(now);
}

// The MPS server may be another one now.
void SpaceServer::FollowLeader(Space& space, Nanos now) {
  const pid_t server = channels_.Table().ServerOf(space.number);
  if (space.leader && space.leader->pid == server) return;
  if (space.leader) steering_->Leave(*space.leader, now);
  space.leader.reset();
  space.active = false;
  if (server == 0) return;
  space.leader = std::make_unique<GateRecord>(space.page, server);
  steering_->Join(space.Entity(), *space.leader, now);
  Settle(space, now, now);
}

// One that waits because it has had what its limit permits is no work for the GPU: others do not share that with it,
// and what they have must count in full for limits of theirs.
bool SpaceServer::AnyWorks(const Space& space) const {
  return std::ranges::any_of(space.gates, [&](const GateRecord* gate) {
    if (gate->held || gate->state == GateRecord::State::kParked) return false;
    return gate->state != GateRecord::State::kWanting ||
           space.tokens.StateOf(gates_.at(gate).vgpu).why != WaitReason::kLimit;
  });
}

// Tells steering whether anything in the space works.
void SpaceServer::Settle(Space& space, Nanos now, Nanos since) {
  const bool works = AnyWorks(space);
  if (space.leader && works != space.active) {
    space.active = works;
    if (works) {
      steering_->Wants(*space.leader, now, false);
    } else {
      steering_->Idle(*space.leader, now, since);
    }
  }
  Mind(now);
}

// Steering may have stopped spaces, or let them go.
void SpaceServer::Mind(Nanos now) {
  for (const auto& [number, space] : spaces_) {
    space->Stand(steering_->StateOf(space->Entity()).standing == Standing::kWaiting, now);
    const double part = space->stands_since == 0 && space->active ? steering_->PartOf(space->Entity()) : space->part;
    if (std::abs(part - space->part) <= kSamePart * space->part) continue;
    space->Count(now);
    space->part = part;
    Rescale(*space, now);
  }
}

// As far as all requests together can be served in that part; steering gives the space so much at least.
void SpaceServer::Rescale(Space& space, Nanos now) {
  const double needed = Together(space.members).request_pct / 100;
  const double part = std::clamp(std::max(space.part, needed), kLeastPart, 1.0);
  for (const auto& [id, shares] : space.members) (void)space.tokens.Set(id, Inside(shares, part), space.At(now));
}

// ---- time ----

void SpaceServer::Advance(Nanos now) {
  steering_->Advance(now);
  Mind(now);
  for (const auto& [number, space] : spaces_) {
    if (space->stands_since == 0) space->tokens.Advance(space->At(now));
  }
  for (const auto& [number, space] : spaces_) Settle(*space, now, now);
}

TimeServer::Deadline SpaceServer::NextDeadline() const {
  Deadline next = steering_->NextDeadline();
  for (const auto& [number, space] : spaces_) {
    const Nanos at = space->tokens.NextDeadline().at;
    if (space->stands_since == 0 && at != kNever) next.at = std::min(next.at, at + space->stood);
  }
  return next;
}

void SpaceServer::Seal() {
  TimeServer::Seal();
  steering_->Seal();
  for (const auto& [number, space] : spaces_) space->tokens.Seal();
}

TimeServer::State SpaceServer::StateOf(Id vgpu) const {
  const Space* space = SpaceOf(vgpu);
  if (!space) return steering_->StateOf(vgpu);
  State state = space->tokens.StateOf(vgpu);
  const State whole = steering_->StateOf(space->Entity());
  state.slice = whole.slice;
  if (state.standing == Standing::kRunning && whole.standing == Standing::kWaiting) {
    state.standing = whole.standing;
    state.why = whole.why;
  }
  return state;
}

sched::Usage SpaceServer::UsageOf(Id vgpu, Nanos now) const {
  const Space* space = SpaceOf(vgpu);
  return space ? space->tokens.UsageOf(vgpu, space->At(now)) : steering_->UsageOf(vgpu, now);
}

TimeServer::SpaceTime SpaceServer::TimeOf(std::uint32_t number, Nanos now) const {
  const auto found = spaces_.find(number);
  if (found == spaces_.end()) return {};
  return {.passed = found->second->At(now), .had = static_cast<Nanos>(found->second->Had(now))};
}

}  // namespace tessera::server
