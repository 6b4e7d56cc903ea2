#include "face/text/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "server/model/freeze_reason.h"
#include "server/model/suspension_state.h"
#include "server/time/time_server.h"

namespace tessera::face {
namespace {

using server::FreezeReason;
using server::SuspensionPhase;
using server::TraceCopy;
using server::TraceKind;
using server::TraceRecord;
using server::WaitReason;
using Standing = server::Standing;

// In this format a GPU is a "process", and vGPUs and processes are its "threads".
constexpr std::uint64_t kFirstProcessTrack = 1ull << 32;
constexpr std::uint64_t kFirstSuspensionTrack = 1ull << 33;  // likewise of processes

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const char* NameOf(WaitReason why) {
  switch (why) {
    case WaitReason::kTurn:
      return "turn";
    case WaitReason::kLimit:
      return "limit";
    case WaitReason::kClass:
      return "priority";
    case WaitReason::kNone:
      break;
  }
  return "";
}

std::string NamesOf(std::uint64_t reasons) {
  std::string names;
  for (const char* name : server::NamesOf(static_cast<FreezeReason>(reasons)))
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

class Writer {
 public:
  explicit Writer(const TraceCopy& trace) : trace_(trace) {}

  std::string Write(const std::vector<server::Event>& events) {
    for (const TraceRecord& record : trace_.records) Add(record);
    EndWhatLasts();
    for (const server::Event& event : events) Add(event);
    NameTracks();
    const Nanos begin = trace_.records.empty() ? trace_.now : trace_.records.front().at;
    return fmt::format(
               R"({{"otherData":{{"records":{},"whole":{},"begin_us":{},"end_us":{}}},"displayTimeUnit":"ms","traceEvents":[)",
               trace_.records.size(), trace_.whole, (begin + trace_.wall) / kMicrosecond,
               (trace_.now + trace_.wall) / kMicrosecond) +
           text_ + "\n]}\n";
  }

 private:
  using Track = std::pair<std::uint32_t, std::uint64_t>;  // GPU, vGPU or process

  struct Frozen {
    Nanos since = 0;
    std::uint64_t reasons = 0;
    Nanos took = 0;
  };

  void Add(const TraceRecord& record) {
    switch (record.kind) {
      case TraceKind::kStanding:
        return AddStanding(record);
      case TraceKind::kFrozen:
        EndFrozen(record);
        frozen_[{record.gpu, ProcessTrack(record)}] = {record.at, record.value, record.took};
        return;
      case TraceKind::kThawed:
        return EndFrozen(record);
      case TraceKind::kSlice:
        return Counter(record.gpu, "slice of process " + std::to_string(record.pid), record.at,
                       fmt::format(R"("ms":{:.3f})", static_cast<double>(record.value) / kMillisecond));
      case TraceKind::kMovedOut:
      case TraceKind::kMovedIn:
        return AddMove(record);
      case TraceKind::kMemory:
        return Counter(record.gpu, "memory of " + NameOfVGpu(record.vgpu), record.at,
                       fmt::format(R"("resident":{},"swapped":{})", record.value, record.other));
      case TraceKind::kSuspension:
        return AddPhase(record);
    }
  }

  void AddStanding(const TraceRecord& record) {
    const Track track{record.gpu, record.vgpu};
    vgpus_.insert(track);
    Period(track, static_cast<Standing>(record.old_value), static_cast<WaitReason>(record.old_other),
           record.at - record.took, record.at);
    const auto standing = static_cast<Standing>(record.value);
    // The closing record of a state that has not changed repeats it, and the state lasts.
    if (record.at == trace_.now) return;
    if (standing != Standing::kIdle) lasting_[track] = record;
    if (standing == Standing::kIdle) lasting_.erase(track);
    auto& waiting = waiting_[record.gpu];
    const std::size_t before = waiting.size();
    standing == Standing::kWaiting ? (void)waiting.insert(record.vgpu) : (void)waiting.erase(record.vgpu);
    if (waiting.size() != before || !std::exchange(queued_[record.gpu], true))
      Counter(record.gpu, "vGPUs that wait", record.at, fmt::format(R"("waiting":{})", waiting.size()));
  }

  void Period(const Track& track, Standing standing, WaitReason why, Nanos begin, Nanos end) {
    if (standing == Standing::kIdle || begin >= end) return;
    const bool runs = standing == Standing::kRunning;
    const std::string args = runs ? "" : fmt::format(R"("why":"{}")", NameOf(why));
    Span(track, runs ? "runs" : std::string("waits: ") + NameOf(why), begin, end, args);
  }

  // A record with a process's reasons to be frozen ends the reasons before it.
  void EndFrozen(const TraceRecord& record) {
    const Track track{record.gpu, ProcessTrack(record)};
    const auto found = frozen_.find(track);
    if (found == frozen_.end()) return;
    const bool thawed = record.kind == TraceKind::kThawed;
    EndFrozen(track, found->second, record.at, thawed ? record.took : 0);
    frozen_.erase(found);
  }

  void EndFrozen(const Track& track, const Frozen& frozen, Nanos end, Nanos thaw_took) {
    Span(track, "frozen: " + NamesOf(frozen.reasons), frozen.since, end,
         fmt::format(R"("why":"{}","freeze_us":{},"thaw_us":{})", NamesOf(frozen.reasons), frozen.took / kMicrosecond,
                     thaw_took / kMicrosecond));
  }

  void AddMove(const TraceRecord& record) {
    const bool out = record.kind == TraceKind::kMovedOut;
    const double seconds = static_cast<double>(std::max<Nanos>(record.took, 1)) / kSecond;
    Span({record.gpu, ProcessTrack(record)}, out ? "memory out" : "memory in", record.at - record.took, record.at,
         fmt::format(R"("bytes":{},"GB_per_s":{:.2f})", record.value,
                     static_cast<double>(record.value) / 1e9 / seconds));
  }

  // It lies on a track of its own, as it begins and ends between freezes and moves.
  void AddPhase(const TraceRecord& record) {
    const auto before = static_cast<SuspensionPhase>(record.old_value),
               phase = static_cast<SuspensionPhase>(record.value);
    if (before != SuspensionPhase::kNone)
      Phase(record, before, record.at - record.took, record.at, fmt::format(R"(,"bytes":{})", record.other));
    if (record.at == trace_.now) return;  // as with standings
    const std::pair key{record.vgpu, record.pid};
    phase == SuspensionPhase::kNone ? (void)phases_.erase(key) : (void)phases_.insert_or_assign(key, record);
  }

  void Phase(const TraceRecord& record, SuspensionPhase phase, Nanos begin, Nanos end, const std::string& more) {
    const Track track{record.gpu, kFirstSuspensionTrack + static_cast<std::uint64_t>(record.pid)};
    suspensions_[track] = record.pid;
    Span(track, server::NameOf(phase), begin, end, fmt::format(R"("pid":{}{})", record.pid, more));
  }

  // States that last beyond the end of the trace.
  void EndWhatLasts() {
    for (const auto& [track, record] : lasting_)
      Period(track, static_cast<Standing>(record.value), static_cast<WaitReason>(record.other), record.at, trace_.now);
    for (const auto& [track, frozen] : frozen_) EndFrozen(track, frozen, trace_.now, 0);
    for (const auto& [key, record] : phases_)
      Phase(record, static_cast<SuspensionPhase>(record.value), record.at, trace_.now, "");
  }

  void Add(const server::Event& event) {
    std::string name = NameOf(event.type);
    if (!event.vgpu.empty()) name += " " + event.vgpu;
    if (event.pid != 0) name += " " + std::to_string(event.pid);
    if (event.gpu) gpus_.insert(*event.gpu);
    Line(fmt::format(R"("ph":"i","pid":{},"tid":0,"ts":{},"s":"{}","name":{},"args":{{"text":{}}})",
                     event.gpu.value_or(0) + 1, event.time_us, event.gpu ? 'p' : 'g', Quoted(name),
                     Quoted(event.text)));
  }

  std::uint64_t ProcessTrack(const TraceRecord& record) {
    const std::uint64_t track = kFirstProcessTrack + static_cast<std::uint64_t>(record.pid);
    processes_[{record.gpu, track}] = record.pid;
    return track;
  }

  std::string NameOfVGpu(std::uint64_t id) const {
    const auto found = trace_.vgpus.find(id);
    return found == trace_.vgpus.end() ? "vGPU " + std::to_string(id) : found->second;
  }

  std::string NameOfProcess(pid_t pid) const {
    const auto found = trace_.programs.find(pid);
    return std::to_string(pid) + (found == trace_.programs.end() ? "" : " " + found->second);
  }

  void NameTracks() {
    for (const auto& [gpu, vgpu] : vgpus_) NameTrack({gpu, vgpu}, NameOfVGpu(vgpu));
    for (const auto& [track, pid] : processes_) NameTrack(track, "process " + NameOfProcess(pid));
    for (const auto& [track, pid] : suspensions_) NameTrack(track, "suspension of process " + NameOfProcess(pid));
    for (const std::uint32_t gpu : gpus_)
      Line(fmt::format(R"("ph":"M","pid":{},"name":"process_name","args":{{"name":"GPU {}"}})", gpu + 1, gpu));
  }

  void NameTrack(const Track& track, const std::string& name) {
    gpus_.insert(track.first);
    Line(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}})", track.first + 1,
                     track.second, Quoted(name)));
    Line(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}})",
                     track.first + 1, track.second, track.second));
  }

  // Microseconds of the wall clock, with all digits.
  std::string Time(Nanos at) const {
    const Nanos wall = at + trace_.wall;
    return fmt::format("{}.{:03}", wall / kMicrosecond, wall % kMicrosecond);
  }

  void Span(const Track& track, const std::string& name, Nanos begin, Nanos end, const std::string& args) {
    const Nanos length = std::max<Nanos>(end - begin, 0);
    Line(fmt::format(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{}.{:03},"name":"{}","args":{{{}}})", track.first + 1,
                     track.second, Time(begin), length / kMicrosecond, length % kMicrosecond, name, args));
  }

  void Counter(std::uint32_t gpu, const std::string& name, Nanos at, const std::string& args) {
    gpus_.insert(gpu);
    Line(fmt::format(R"("ph":"C","pid":{},"ts":{},"name":{},"args":{{{}}})", gpu + 1, Time(at), Quoted(name), args));
  }

  void Line(const std::string& fields) { text_ += (text_.empty() ? "\n{" : ",\n{") + fields + "}"; }

  const TraceCopy& trace_;
  std::string text_;
  std::set<std::uint32_t> gpus_;
  std::set<Track> vgpus_;
  std::map<Track, pid_t> processes_;
  std::map<Track, TraceRecord> lasting_;  // the last record of each track that is not idle
  std::map<Track, Frozen> frozen_;
  std::map<Track, pid_t> suspensions_;
  std::map<std::pair<std::uint64_t, pid_t>, TraceRecord> phases_;  // the last record of each that is not none; by vGPU
  std::map<std::uint32_t, std::set<std::uint64_t>> waiting_;       // vGPUs, by GPU
  std::map<std::uint32_t, bool> queued_;                           // the counter has begun
};

}  // namespace

std::string WriteTrace(const TraceCopy& trace, const std::vector<server::Event>& events) {
  return Writer(trace).Write(events);
}

}  // namespace tessera::face
