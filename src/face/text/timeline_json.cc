#include "face/text/timeline_json.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "server/model/freeze_reason.h"
#include "server/time/time_server.h"

namespace tessera::face {
namespace {

using nlohmann::json;
using server::FreezeReason;
using server::Standing;
using server::TraceKind;
using server::TraceRecord;

constexpr std::size_t kMostSpans = 1000;  // the last ones

class Timeline {
 public:
  Timeline(const server::TraceCopy& trace, Nanos past)
      : trace_(trace),
        steps_(static_cast<std::size_t>(std::max<Nanos>(past, kSecond) / kSecond)),
        begin_(trace.now - static_cast<Nanos>(steps_) * kSecond) {}

  json Make() {
    for (const TraceRecord& record : trace_.records) Add(record);
    for (const auto& [vgpu, record] : lasting_)
      AddPeriod(record, static_cast<Standing>(record.value), record.at, trace_.now);
    for (const auto& [key, record] : frozen_) AddFreeze(record, trace_.now);
    for (auto& [gpu, changes] : running_) DivideTime(changes);
    json vgpus = json::array();
    for (const auto& [id, track] : tracks_) {
      const auto name = trace_.vgpus.find(id);
      if (name == trace_.vgpus.end()) continue;
      vgpus.push_back({{"name", name->second},
                       {"gpu", track.gpu},
                       {"ran_pct", Percent(track.ran)},
                       {"waited_pct", Percent(track.waited)}});
    }
    return {{"begin_us", (begin_ + trace_.wall) / kMicrosecond},
            {"step_us", kSecond / kMicrosecond},
            {"steps", steps_},
            {"whole", trace_.whole},
            {"vgpus", std::move(vgpus)},
            {"spans", spans_}};
  }

 private:
  using Sums = std::vector<double>;  // nanoseconds of each second
  struct Track {
    std::uint32_t gpu = 0;
    Sums ran, waited;
  };
  struct Change {
    Nanos at = 0;
    bool begins = false;  // else ends
    std::uint64_t vgpu = 0;
  };

  void Add(const TraceRecord& record) {
    switch (record.kind) {
      case TraceKind::kStanding:
        AddPeriod(record, static_cast<Standing>(record.old_value), record.at - record.took, record.at);
        // The closing record of a state that has not changed repeats it.
        if (record.at != trace_.now) lasting_[record.vgpu] = record;
        return;
      case TraceKind::kFrozen:
      case TraceKind::kThawed:
        return AddFreezing(record);
      case TraceKind::kMovedOut:
      case TraceKind::kMovedIn:
        return AddSpan(record, record.kind == TraceKind::kMovedOut ? "out" : "in", record.at - record.took, record.at,
                       {{"bytes", record.value}});
      case TraceKind::kSlice:
      case TraceKind::kMemory:
      case TraceKind::kSuspension:
        return;
    }
  }

  void AddPeriod(const TraceRecord& record, Standing standing, Nanos from, Nanos to) {
    from = std::max(from, begin_);
    to = std::min(to, trace_.now);
    if (standing == Standing::kIdle || from >= to) return;
    Track& track = tracks_[record.vgpu];
    track.gpu = record.gpu;
    if (standing == Standing::kWaiting) return AddTo(track.waited, from, to, 1);
    running_[record.gpu].push_back({from, true, record.vgpu});
    running_[record.gpu].push_back({to, false, record.vgpu});
  }

  // Where slices divide the time, several run: each gets an equal part of it here, as its slice is not known for sure.
  void DivideTime(std::vector<Change>& changes) {
    std::ranges::sort(changes, {}, [](const Change& change) { return std::pair(change.at, change.begins); });
    std::map<std::uint64_t, int> running;
    Nanos since = begin_;
    for (const Change& change : changes) {
      for (const auto& [vgpu, periods] : running)
        AddTo(tracks_[vgpu].ran, since, change.at, 1.0 / static_cast<double>(running.size()));
      since = change.at;
      int& periods = running[change.vgpu];
      periods += change.begins ? 1 : -1;
      if (periods == 0) running.erase(change.vgpu);
    }
  }

  // A part of the time from one moment to another.
  void AddTo(Sums& sums, Nanos from, Nanos to, double part) const {
    sums.resize(steps_);
    for (Nanos at = from; at < to;) {
      const auto step = static_cast<std::size_t>((at - begin_) / kSecond);
      const Nanos next = std::min(to, begin_ + static_cast<Nanos>(step + 1) * kSecond);
      if (step < steps_) sums[step] += part * static_cast<double>(next - at);
      at = next;
    }
  }

  // The scheduler's own freezes are too many and too short to be seen in seconds.
  void AddFreezing(const TraceRecord& record) {
    const auto key = std::pair(record.gpu, record.pid);
    const auto reasons = [](const TraceRecord& each) {
      return each.kind == TraceKind::kThawed ? FreezeReason::kNone
                                             : static_cast<FreezeReason>(each.value) - FreezeReason::kPolicy;
    };
    const auto before = frozen_.find(key);
    if (before != frozen_.end()) {
      if (reasons(before->second) == reasons(record)) return;
      AddFreeze(before->second, record.at);
      frozen_.erase(before);
    }
    if (Any(reasons(record))) frozen_[key] = record;
  }

  void AddFreeze(const TraceRecord& record, Nanos until) {
    json why = server::NamesOf(static_cast<FreezeReason>(record.value) - FreezeReason::kPolicy);
    AddSpan(record, "frozen", record.at, until, {{"why", std::move(why)}});
  }

  void AddSpan(const TraceRecord& record, const char* what, Nanos from, Nanos to, json span) {
    if (to < begin_) return;
    span["what"] = what;
    span["gpu"] = record.gpu;
    span["pid"] = record.pid;
    span["begin_us"] = (std::max(from, begin_) + trace_.wall) / kMicrosecond;
    span["end_us"] = (to + trace_.wall) / kMicrosecond;
    spans_.push_back(std::move(span));
    if (spans_.size() > kMostSpans) spans_.pop_front();
  }

  std::vector<int> Percent(const Sums& sums) const {
    std::vector<int> percent(steps_);
    std::ranges::transform(sums, percent.begin(),
                           [](double sum) { return static_cast<int>(std::lround(100.0 * sum / kSecond)); });
    return percent;
  }

  const server::TraceCopy& trace_;
  const std::size_t steps_;
  const Nanos begin_;
  std::map<std::uint64_t, Track> tracks_;
  std::map<std::uint32_t, std::vector<Change>> running_;  // by GPU
  std::map<std::uint64_t, TraceRecord> lasting_;
  std::map<std::pair<std::uint32_t, std::int32_t>, TraceRecord> frozen_;
  std::deque<json> spans_;
};

}  // namespace

std::string WriteTimeline(const server::TraceCopy& trace, Nanos past) {
  return Timeline(trace, past).Make().dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::face
