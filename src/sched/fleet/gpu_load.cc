#include "sched/fleet/gpu_load.h"

#include <algorithm>
#include <utility>

#include "sched/fleet/interval_count.h"
#include "sched/packing/strip.h"

namespace tessera::sched {
namespace {

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double Beyond(double ratio) { return std::max(0.0, ratio - 1); }

double AreaOf(const Way& way) { return PctOf(way.size.sms) * PctOf(way.size.time) / 1e4; }  // of the whole

// The ways in which the members of one group get what they were promised on one GPU: some at the same time in a space,
// and those that are given all SMs one after the other.
class GroupWays {
 public:
  // `enough`: of the time; nothing less is looked for.
  GroupWays(const std::vector<FleetTenant>& tenants, std::vector<std::size_t> members, Part enough)
      : tenants_(tenants), members_(std::move(members)), chosen_(members_.size()) {
    double least = 0;  // area; no choice takes less time
    for (std::size_t i = 0; i < members_.size(); ++i) {
      chosen_[i] = WaysOf(i).size() - 1;
      least += AreaOf(std::ranges::min(WaysOf(i), {}, AreaOf));
    }
    time_ = TimeOf(chosen_);
    if (members_.size() < 2) return;
    if (least * kWhole > static_cast<double>(enough)) {
      time_ = std::min(time_, static_cast<Part>(least * kWhole));
      return;
    }
    // From all as narrow as possible, from the least area, from each height in turn; then one after the other is
    // changed as long as that helps.
    Consider([](const std::vector<Way>&) { return std::size_t{0}; });
    if (time_ <= enough) return;
    Consider([](const std::vector<Way>& ways) {
      return static_cast<std::size_t>(std::ranges::min_element(ways, {}, AreaOf) - ways.begin());
    });
    for (const double height : {0.75, 2.0 / 3, 0.5, 1.0 / 3, 0.25}) {
      Consider([&](const std::vector<Way>& ways) {
        const auto low =
            std::ranges::find_if(ways, [&](const Way& way) { return PctOf(way.size.time) <= height * 100.01; });
        return std::min(ways.size() - 1, static_cast<std::size_t>(low - ways.begin()));
      });
    }
    for (bool better = true; better && time_ > enough;) {
      better = false;
      for (std::size_t i = 0; i < members_.size(); ++i) better |= TryOthers(i);
    }
  }

  // Of the GPU, in which all promises are kept.
  Part time() const { return time_; }
  const Way& WayOf(std::size_t index) const { return WaysOf(index)[chosen_[index]]; }
  // How many alternate in time: the space, and those that are given all SMs.
  std::size_t Alternate() const {
    std::size_t alone = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) alone += WayOf(i).size.sms == kWhole ? 1 : 0;
    return alone + (alone < members_.size() ? 1 : 0);
  }
  double Bandwidth() const {  // while the space runs
    double used = 0;          // x time
    std::vector<Rectangle> space;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (WayOf(i).size.sms == kWhole) continue;
      used += WayOf(i).bandwidth * PctOf(WayOf(i).size.time) / 100;
      space.push_back(WayOf(i).size);
    }
    return Ratio(used, PctOf(TimeToKeep(std::move(space))) / 100);
  }

 private:
  const std::vector<Way>& WaysOf(std::size_t index) const { return tenants_[members_[index]].ways; }
  Part TimeOf(const std::vector<std::size_t>& choice) const {
    std::vector<Rectangle> space;
    Part alone = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const Rectangle& size = WaysOf(i)[choice[i]].size;
      if (size.sms == kWhole) {
        alone += size.time;
      } else {
        space.push_back(size);
      }
    }
    return alone + TimeToKeep(std::move(space));
  }
  template <typename Choose>
  void Consider(const Choose& choose) {
    std::vector<std::size_t> choice;
    for (std::size_t i = 0; i < members_.size(); ++i) choice.push_back(choose(WaysOf(i)));
    Take(std::move(choice));
  }
  bool Take(std::vector<std::size_t> choice) {
    const Part time = TimeOf(choice);
    if (time >= time_) return false;
    time_ = time;
    chosen_ = std::move(choice);
    return true;
  }
  bool TryOthers(std::size_t index) {
    bool better = false;
    for (std::size_t way = 0; way < WaysOf(index).size(); ++way) {
      if (way == chosen_[index]) continue;
      std::vector<std::size_t> choice = chosen_;
      choice[index] = way;
      better |= Take(std::move(choice));
    }
    return better;
  }

  const std::vector<FleetTenant>& tenants_;
  const std::vector<std::size_t> members_;
  std::vector<std::size_t> chosen_;  // of the ways of each
  Part time_ = 0;
};

}  // namespace

std::string_view NameOf(Binds binds) {
  switch (binds) {
    case Binds::kMemory:
      return "memory";
    case Binds::kTime:
      return "time and SMs";
    case Binds::kBandwidth:
      return "memory bandwidth";
    case Binds::kUse:
      return "use at the same time";
    case Binds::kNothing:
      break;
  }
  return "nothing";
}

void GpuLoad::Add(std::size_t tenant) {
  members_.push_back(tenant);
  if (const UseSeries& use = (*tenants_)[tenant].use; !use.empty()) sums_.Add(use, 1);
  known_ = false;
}

void GpuLoad::Remove(std::size_t tenant) {
  std::erase(members_, tenant);
  if (const UseSeries& use = (*tenants_)[tenant].use; !use.empty()) sums_.Add(use, -1);
  known_ = false;
}

GpuLoad::Excess GpuLoad::Now() const { return Of(members_, promises(), See(nullptr, nullptr)); }

GpuLoad::Excess GpuLoad::After(std::size_t leaves, std::size_t comes) const {
  static thread_local std::vector<std::size_t> members;
  members = members_;
  if (leaves != kNobody) std::erase(members, leaves);
  if (comes != kNobody) members.push_back(comes);
  const auto use_of = [&](std::size_t tenant) {
    const UseSeries* use = tenant == kNobody ? nullptr : &(*tenants_)[tenant].use;
    return use && !use->empty() ? use : nullptr;
  };
  const bool promised =
      std::ranges::any_of(members, [&](std::size_t member) { return !(*tenants_)[member].ways.empty(); });
  return Of(members, promised ? Promise(members) : Promises(), See(use_of(leaves), use_of(comes)));
}

bool GpuLoad::HasRoomFor(std::size_t tenant) const {
  const Excess after = After(kNobody, tenant);
  return after.promised <= 0 && after.over <= gpu_->most_over;
}

GpuLoad::Excess GpuLoad::Of(const std::vector<std::size_t>& members, const Promises& promises, const Seen& seen) const {
  double in_all = 0;  // bytes, of use that was seen only what cannot move
  double largest = 0;
  bool bear_turns = true;
  for (const std::size_t member : members) {
    const FleetTenant& tenant = (*tenants_)[member];
    const auto bytes = static_cast<double>(tenant.memory + tenant.fixed);
    largest = std::max(largest, bytes);
    in_all += tenant.use.empty() ? bytes : static_cast<double>(tenant.fixed);
    bear_turns &= tenant.waits_for_turns;
  }
  const auto memory = static_cast<double>(gpu_->memory);
  const bool turns = in_all > memory;
  Excess excess{.promised = Beyond(OverPromised(members)), .over = 0};
  if (!gpu_->moves_memory) {
    excess.promised += Beyond(Ratio(in_all + seen.most, memory));
  } else {
    excess.promised += Beyond(Ratio(turns && !bear_turns ? in_all : largest, memory));
  }
  if (!gpu_->shares_time) return excess;
  const double left = static_cast<double>(kWhole) * (turns ? 1 - gpu_->most_moving : 1);
  excess.promised += Beyond(Ratio(static_cast<double>(promises.time), left)) + Beyond(promises.bandwidth) +
                     std::max(0.0, seen.over - gpu_->most_over_of_one);
  excess.over = seen.over;
  excess.beyond = seen.beyond;
  return excess;
}

double GpuLoad::OverPromised(const std::vector<std::size_t>& members) const {
  double bytes = 0;
  for (const std::size_t member : members) {
    const FleetTenant& tenant = (*tenants_)[member];
    bytes += static_cast<double>(tenant.promised + tenant.fixed);
  }
  return Ratio(bytes, static_cast<double>(gpu_->memory));
}

double GpuLoad::PromisedMemory() const { return OverPromised(members_); }

double GpuLoad::Memory() const {
  double bytes = 0;
  for (const std::size_t member : members_) {
    const FleetTenant& tenant = (*tenants_)[member];
    bytes += static_cast<double>(tenant.fixed + (tenant.use.empty() ? tenant.memory : 0));
  }
  bytes += See(nullptr, nullptr).most;
  return Ratio(bytes, static_cast<double>(gpu_->memory));
}

double GpuLoad::Time() const { return Ratio(static_cast<double>(promises().time), static_cast<double>(kWhole)); }

GpuLoad::Seen GpuLoad::See(const UseSeries* less, const UseSeries* more) const {
  const std::size_t intervals = more ? more->duty.size() : sums_.duty.size();
  if (intervals == 0) return {};
  static thread_local std::vector<std::int32_t> zeros;
  if (zeros.size() < intervals) zeros.resize(intervals);
  const auto series = [&](std::vector<std::int32_t> UseSeries::* which) {
    const auto of = [&](const UseSeries* use) {
      return use && !use->empty() ? (use->*which).data() : static_cast<const std::int32_t*>(zeros.data());
    };
    return ChangedSeries{.sum = of(&sums_), .minus = of(less), .plus = of(more)};
  };
  const IntervalCounts counts = CountIntervals(intervals,
                                               {.duty = series(&UseSeries::duty),
                                                .memory = series(&UseSeries::memory),
                                                .active = series(&UseSeries::active),
                                                .woken = series(&UseSeries::woken)},
                                               RoomOf(*gpu_));
  const auto count = static_cast<double>(intervals);
  return {.over = counts.over / count,
          .beyond = static_cast<double>(counts.beyond) / UseSeries::kWholeInterval / count,
          .most = static_cast<double>(counts.most) * (1 << 20)};
}

// Spaces alternate in time with each other and with those that are alone. A GPU with a latency goal has no space: while
// one has its turn, nobody comes in between.
GpuLoad::Promises GpuLoad::Promise(const std::vector<std::size_t>& members) const {
  Promises promises;
  promises.seats.resize(members.size());
  std::size_t alternate = 0;  // spaces, and those that are alone
  const bool has_spaces = gpu_->has_spaces && std::ranges::all_of(members, [&](std::size_t member) {
                            return (*tenants_)[member].waits_for_turns;
                          });
  std::map<std::uint32_t, std::vector<std::size_t>> groups;  // indices of `members`
  for (std::size_t i = 0; i < members.size(); ++i) {
    const FleetTenant& tenant = (*tenants_)[members[i]];
    if (tenant.ways.empty()) continue;
    if (tenant.group != 0) {
      groups[tenant.group].push_back(i);
      continue;
    }
    promises.seats[i].way = tenant.ways.back();
    promises.time += tenant.ways.back().size.time;
    ++alternate;
  }
  for (const auto& [_, indices] : groups) {
    std::vector<std::size_t> together;
    Part in_turns = 0;
    for (const std::size_t i : indices) {
      together.push_back(members[i]);
      in_turns += (*tenants_)[members[i]].ways.back().size.time;
      promises.seats[i].way = (*tenants_)[members[i]].ways.back();
    }
    if (!has_spaces || indices.size() < 2) {
      promises.time += in_turns;
      alternate += indices.size();
      continue;
    }
    const GroupWays group(*tenants_, together, std::max<Part>(0, kWhole - gpu_->switching - promises.time));
    promises.time += group.time();
    promises.bandwidth = std::max(promises.bandwidth, group.Bandwidth());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      promises.seats[indices[i]].way = group.WayOf(i);
      promises.seats[indices[i]].in_space = group.WayOf(i).size.sms < kWhole;
    }
    alternate += group.Alternate();
  }
  if (alternate > 1) promises.time += gpu_->switching;
  return promises;
}

const GpuLoad::Promises& GpuLoad::promises() const {
  if (!std::exchange(known_, true)) promises_ = Promise(members_);
  return promises_;
}

Binds GpuLoad::WhatBinds() const {
  const double most_over = gpu_->most_over > 0 ? gpu_->most_over : 1;
  const std::pair<double, Binds> all[] = {{PromisedMemory(), Binds::kMemory},
                                          {Time(), Binds::kTime},
                                          {promises().bandwidth, Binds::kBandwidth},
                                          {See(nullptr, nullptr).over / most_over, Binds::kUse}};
  const auto most = std::ranges::max_element(all, {}, [](const auto& entry) { return entry.first; });
  return most->first > 0 ? most->second : Binds::kNothing;
}

}  // namespace tessera::sched
