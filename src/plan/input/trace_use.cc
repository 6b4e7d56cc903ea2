#include "plan/input/trace_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text/counted.h"

namespace tessera::plan {

namespace {

std::unexpected<Error> TooMany() {
  return Fail(ERANGE, "the trace has too many vGPUs for its length", "use a shorter one");
}

}  // namespace

TraceUse::TraceUse(Nanos length, Nanos interval)
    : length_(length),
      interval_(std::max<Nanos>(interval, length / static_cast<Nanos>(kMostIntervals) + 1)),
      intervals_(std::max<std::size_t>(static_cast<std::size_t>((length + interval_ / 2) / interval_), 1)) {}

Result<void> TraceUse::AddWork(std::int64_t gpu, std::int64_t track, Nanos begin, Nanos end) {
  begin = std::max<Nanos>(begin, 0);
  end = std::min(end, length_);
  if (begin >= end) return {};
  Work& work = work_[{gpu, track}];
  if (work.part.empty()) {
    if (work_.size() * intervals_ > kMostSamples) return TooMany();
    work.part.resize(intervals_);
    work.whole.resize(intervals_ + 1);
  }
  const std::size_t first = At(begin), last = At(end - 1);
  if (first == last) {
    work.part[first] += end - begin;
    return {};
  }
  work.part[first] += static_cast<Nanos>(first + 1) * interval_ - begin;
  work.part[last] += end - static_cast<Nanos>(last) * interval_;
  ++work.whole[first + 1];
  --work.whole[last];
  return {};
}

void TraceUse::AddMemory(std::int64_t gpu, const std::string& name, Nanos at, std::uint64_t bytes) {
  named_[{gpu, name}].memory.push_back({std::clamp<Nanos>(at, 0, length_), bytes});
}

void TraceUse::AddBegin(std::int64_t gpu, const std::string& name, Nanos at) {
  Named& named = named_[{gpu, name}];
  // One that was removed before, and is made again, was there at the begin.
  if (!named.begin && !named.end) named.begin = std::clamp<Nanos>(at, 0, length_ - 1);
  named.end.reset();
}

void TraceUse::AddEnd(std::int64_t gpu, const std::string& name, Nanos at) {
  named_[{gpu, name}].end = std::clamp<Nanos>(at, 1, length_);
}

void TraceUse::NameTrack(std::int64_t gpu, std::int64_t track, const std::string& name) { names_[{gpu, track}] = name; }

void TraceUse::NameGpu(std::int64_t gpu, const std::string& name) { gpus_[gpu] = name; }

std::vector<UseSample> TraceUse::Samples(const Work* work, Named& named) {
  std::vector<Change>& changes = named.memory;
  const auto earlier = [](const Change& one, const Change& other) { return one.at < other.at; };
  if (!std::ranges::is_sorted(changes, earlier)) std::ranges::sort(changes, earlier);
  const std::size_t first = At(named.begin.value_or(0)), last = At(named.end.value_or(length_) - 1);
  // A trace ends with what each vGPU has then.
  std::uint64_t memory = changes.empty() || named.begin ? 0 : changes.front().bytes;
  if (memory > 0 && changes.front().at < length_) ++guessed_;
  std::vector<UseSample> samples;
  auto change = changes.begin();
  Nanos whole = 0;
  for (std::size_t i = 0; i <= last; ++i) {
    const Nanos begin = static_cast<Nanos>(i) * interval_;
    const Nanos end = i + 1 == intervals_ ? length_ : begin + interval_;
    if (work != nullptr) whole += work->whole[i];
    const Nanos busy = work == nullptr ? 0 : std::min(work->part[i] + whole * interval_, end - begin);
    std::uint64_t most = memory;
    for (; change != changes.end() && change->at <= end; ++change) {
      memory = change->bytes;
      most = std::max(most, memory);
    }
    if (i >= first)
      samples.push_back(
          {begin, static_cast<float>(static_cast<double>(busy) / static_cast<double>(end - begin)), most});
  }
  return samples;
}

Result<Workload> TraceUse::Take() {
  Workload workload{.length = length_, .interval = interval_};
  std::map<NameOnGpu, const Work*> all;
  for (const auto& [track, work] : work_) {
    const auto name = names_.find(track);
    all[{track.first, name == names_.end() ? fmt::format("vGPU {}", track.second) : name->second}] = &work;
  }
  for (const auto& [which, named] : named_) all.try_emplace(which, nullptr);
  if (all.size() * intervals_ > kMostSamples) return TooMany();
  std::set<std::string> names;
  for (const auto& [which, work] : all) {
    const auto& [gpu, name] = which;
    const auto called = gpus_.find(gpu);
    Tenant tenant{.name = name, .ran_on = called == gpus_.end() ? fmt::format("GPU {}", gpu - 1) : called->second};
    if (!names.insert(name).second) {
      // vGPUs of several GPUs may have the same name; what stands in brackets tells them apart.
      tenant.name += fmt::format(" ({})", tenant.ran_on);
      while (!names.insert(tenant.name).second) tenant.name += "'";
    }
    tenant.samples = Samples(work, named_[which]);
    if (tenant.samples.empty()) continue;
    for (const UseSample& sample : tenant.samples) tenant.memory = std::max(tenant.memory, sample.memory);
    workload.tenants.push_back(std::move(tenant));
  }
  workload.notes.push_back("duty is the time in which a vGPU had work, its waits for a turn included");
  if (guessed_ > 0) {
    workload.notes.push_back(fmt::format(
        "how much memory {} had at the begin is not in the trace: as much as after its first change is taken",
        Counted(guessed_, "vGPU")));
  }
  return workload;
}

}  // namespace tessera::plan
