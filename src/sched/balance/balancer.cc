#include "sched/balance/balancer.h"

#include <algorithm>
#include <set>

namespace tessera::sched {

void Balancer::See(const std::vector<Seen>& vgpus, Nanos now) {
  std::set<VgpuId> there;
  for (const Seen& seen : vgpus) {
    there.insert(seen.vgpu);
    Note(vgpus_.try_emplace(seen.vgpu, Known{.seen = seen, .samples = {}}).first->second, seen, now);
  }
  std::erase_if(vgpus_, [&](const auto& each) { return !there.contains(each.first); });
  NoteOver(now);
}

void Balancer::Note(Known& known, const Seen& seen, Nanos now) {
  if (known.seen.gpu != seen.gpu) {
    for (const std::size_t gpu : {known.seen.gpu, seen.gpu}) {
      changed_[gpu] = now;
      over_since_.erase(gpu);
    }
    known.samples.clear();
    known.stays_until = now + std::max(kLeastStay, kStaysPerPause * known.seen.pause);
    known.sent = false;
  } else if (known.sent && !seen.moves) {
    known.stays_until = now + kAfterFailure;
    known.sent = false;
  }
  known.seen = seen;
  auto& samples = known.samples;
  samples.push_back({.at = now, .ran = seen.ran, .had_work = seen.had_work});
  while (samples.size() > 2 && samples[1].at <= now - kWindow) samples.pop_front();
  const Nanos span = now - samples.front().at;
  if (span <= 0) return;
  const Nanos ran = std::clamp<Nanos>(seen.ran - samples.front().ran, 0, span);
  const Nanos had_work = std::clamp(seen.had_work - samples.front().had_work, ran, span);
  known.wanted = std::min(seen.most, WantedTime(ran, had_work, span));
}

double Balancer::WantedOf(VgpuId vgpu) const {
  const auto found = vgpus_.find(vgpu);
  return found == vgpus_.end() ? 0 : found->second.wanted;
}

std::map<std::size_t, double> Balancer::Asked() const {
  std::map<std::size_t, double> asked;
  for (const auto& [_, known] : vgpus_) asked[known.seen.gpu] += known.wanted;
  return asked;
}

void Balancer::NoteOver(Nanos now) {
  const std::map<std::size_t, double> asked = Asked();
  std::erase_if(over_since_, [&](const auto& each) {
    const auto found = asked.find(each.first);
    return found == asked.end() || found->second <= 1;
  });
  for (const auto& [gpu, time] : asked) {
    if (time > 1) over_since_.try_emplace(gpu, now);
  }
}

bool Balancer::AnyOver(const BalanceRules& rules) const {
  return std::ranges::any_of(Asked(), [&](const auto& each) { return each.second + rules.most_moving > 1; });
}

std::optional<Rehoming::Move> Balancer::Next(std::vector<Home> homes, const std::vector<Dweller>& dwellers,
                                             const std::vector<VgpuId>& ids, BalanceRules rules, Nanos now) {
  rules.least_worth = kLeastWorth;
  std::vector<bool> closed(homes.size());
  for (std::size_t i = 0; i < dwellers.size(); ++i) {
    const auto known = vgpus_.find(ids[i]);
    if (known != vgpus_.end() && (known->second.sent || known->second.seen.moves)) closed[dwellers[i].home] = true;
  }
  for (const auto& [gpu, at] : changed_) {
    if (gpu < closed.size() && now - at < kWindow) closed[gpu] = true;
  }
  std::vector<Wanted> wanted;
  for (std::size_t i = 0; i < dwellers.size(); ++i) {
    const auto found = vgpus_.find(ids[i]);
    if (found == vgpus_.end()) {
      wanted.push_back({.stays = true});
      continue;
    }
    const Known& known = found->second;
    const auto over = over_since_.find(dwellers[i].home);
    const Nanos lasted = over == over_since_.end() ? 0 : now - over->second;
    wanted.push_back({.time = known.wanted,
                      .memory = known.seen.memory,
                      .pause = known.seen.pause,
                      .lasts = std::max(kLeastLasts, lasted),
                      .stays = known.seen.stays || now < known.stays_until || closed[dwellers[i].home]});
  }
  for (std::size_t gpu = 0; gpu < homes.size(); ++gpu) {
    if (closed[gpu] && homes[gpu].unusable.empty()) homes[gpu].unusable = "a vGPU has just come or gone";
  }
  const auto move = Balance(homes, dwellers, wanted, rules);
  if (!move) return {};
  changed_[dwellers[move->dweller].home] = changed_[move->to] = now;
  vgpus_.at(ids[move->dweller]).sent = true;
  return move;
}

}  // namespace tessera::sched
