#include "cli/commands/vgpu.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/duration.h"
#include "base/size.h"
#include "cli/commands/evict.h"
#include "cli/commands/listing.h"
#include "cli/terminal/output.h"
#include "cli/vgpu/use_record.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::ApiClient;
using client::BoolField;
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;
using client::TextsField;

namespace {

constexpr std::chrono::milliseconds kAskStateAgain(20);

// "30:60", as --compute takes it.
std::string Compute(const Json& vgpu) {
  return Percent(vgpu, "compute_request_pct") + ":" + Percent(vgpu, "compute_limit_pct");
}

std::string Slice(const Json& vgpu) {
  const std::uint64_t slice_us = IntegerField(vgpu, "slice_us");
  return slice_us > 0 ? FormatMicroseconds(slice_us) : "none";
}

std::string Gang(const Json& vgpu) {
  const std::string gang = TextField(vgpu, "gang");
  return gang.empty() ? "none" : gang;
}

// "pod=llm-0, team=a"
std::string Labels(const Json& vgpu) {
  std::string text;
  const Json& labels = Field(vgpu, "labels");
  if (!labels.is_object()) return "none";
  for (const auto& [key, value] : labels.items())
    text += (text.empty() ? "" : ", ") + key + "=" + (value.is_string() ? value.get<std::string>() : "");
  return text.empty() ? "none" : text;
}

// "team-a, at most 30 % of the SMs"
std::string Space(const Json& vgpu) {
  const std::string space = TextField(vgpu, "space");
  if (space.empty()) return "none";
  const std::uint64_t sms = IntegerField(vgpu, "sms"), kept = IntegerField(vgpu, "sms_kept");
  return space + ", " + (BoolField(vgpu, "sm_reserved") ? "its own " : "at most ") + Percent(vgpu, "sm_limit_pct") +
         " % of the SMs" + (BoolField(vgpu, "sm_burst") ? ", or all while it is alone" : "") +
         (sms == 0 ? "" : "; its programs have " + std::to_string(sms) + " of them") +
         (kept == 0 ? "" : ", " + std::to_string(kept) + " of them those of before");
}

std::string Frozen(const Json& vgpu) {
  const std::string by = TextsField(vgpu, "frozen");
  return by.empty() ? "no" : "by " + by;
}

// "2 GiB of at most 8 GiB"
std::string Swapped(const Json& vgpu) {
  const Json& max = Field(vgpu, "memory_swap_max_bytes");
  return Size(vgpu, "memory_swap_current_bytes") +
         (max.is_null() ? "" : " of at most " + Size(vgpu, "memory_swap_max_bytes"));
}

// "66 MiB: context 64 MiB, pool 2 MiB", the largest first.
std::string Pinned(const Json& vgpu) {
  std::vector<std::pair<std::uint64_t, std::string>> reasons;
  const Json& by = Field(vgpu, "memory_pinned_by");
  if (by.is_object()) {
    for (const auto& [reason, bytes] : by.items()) {
      if (const std::uint64_t of = IntegerField(by, reason.c_str()); of > 0) reasons.emplace_back(of, reason);
    }
  }
  std::ranges::sort(reasons, std::greater());
  std::string text = Size(vgpu, "memory_pinned_bytes");
  const char* before = ": ";
  for (const auto& [bytes, reason] : reasons) text += std::exchange(before, ", ") + reason + " " + FormatSize(bytes);
  return text;
}

std::string Moved(const Json& vgpu) {
  return Size(vgpu, "moved_out_bytes") + " out, " + Size(vgpu, "moved_in_bytes") + " in, in " + Time(vgpu, "moving_us");
}

// Percentages of time lost by waiting, as in /proc/pressure.
std::string Pressure(const Json& pressure) {
  return Percent(pressure, "some_avg10") + " % of the last 10 s, " + Percent(pressure, "some_avg60") + " % of 60 s, " +
         Percent(pressure, "some_avg300") + " % of 300 s; " + Time(pressure, "some_total_us") + " in all";
}

std::string Waited(const Json& vgpu) {
  std::string text = Time(vgpu, "compute_waited_us");
  if (const std::uint64_t times = IntegerField(vgpu, "throttled"); times > 0)
    text += ", " + Time(vgpu, "compute_throttled_us") + " of it for its limit, " + std::to_string(times) + " times";
  if (const std::uint64_t times = IntegerField(vgpu, "preempted"); times > 0)
    text += ", taken off for others " + std::to_string(times) + " times";
  return text;
}

// Latencies are told apart by less than the other times.
std::string Length(const Json& bursts, const char* name) {
  const std::uint64_t us = IntegerField(bursts, name);
  if (us < 1000 || us >= 10'000) return FormatMicroseconds(us);
  return std::to_string(us / 1000) + "." + std::to_string(us / 100 % 10) + " ms";
}

// "1200, 900 requests told, p50 3.1 ms, p95 4.0 ms, p99 4.2 ms, alone p50 2.9 ms"; of what is known.
std::string Bursts(const Json& bursts) {
  const std::uint64_t count = IntegerField(bursts, "count");
  std::string text = count == 0 ? "none" : std::to_string(count);
  if (const std::uint64_t told = IntegerField(bursts, "requests"); told > 0)
    text += ", " + std::to_string(told) + " requests told";
  constexpr std::pair<const char*, const char*> kLengths[] = {
      {"p50 ", "p50_us"}, {"p95 ", "p95_us"}, {"p99 ", "p99_us"}, {"alone p50 ", "solo_p50_us"}};
  for (const auto& [title, name] : kLengths) {
    if (!Field(bursts, name).is_null()) text.append(", ").append(title) += Length(bursts, name);
  }
  return text;
}

// "p99=20ms: missed, attained 25 ms, 3 % too long: the reason"; of what is known.
std::string Goal(const Json& vgpu) {
  std::string text = TextField(vgpu, "goal");
  if (text.empty()) return "none";
  const Json& bursts = Field(vgpu, "bursts");
  const std::string verdict = TextField(bursts, "verdict");
  text += ": " + (verdict.empty() || verdict == "none" ? "not known yet" : verdict);
  const bool speed = text.starts_with("speed");
  if (!Field(bursts, "attained").is_null())
    text += ", attained " + (speed ? Percent(bursts, "attained") + " %" : Length(bursts, "attained"));
  if (!speed) text += ", " + FormatPercent(client::NumberField(bursts, "violations") * 100) + " % too long";
  const std::string reason = TextField(bursts, "reason");
  return reason.empty() ? text : text + ": " + reason;
}

std::string Processes(const Json& vgpu) {
  std::string text;
  for (const Json& pid : Field(vgpu, "processes")) text += (text.empty() ? "" : " ") + pid.dump();
  return text;
}

// Waits until memory above the limit has left the GPU. The daemon could wait, too, but not for longer than its clients.
Result<Json> AwaitLimit(const ApiClient& client, const std::string& path) {
  Patience patience;
  for (;;) {
    auto vgpu = client.Get(path);
    if (!vgpu) return vgpu;
    const std::uint64_t left = IntegerField(*vgpu, "memory_over_limit_bytes");
    if (left == 0) return vgpu;
    const std::string stays = TextField(*vgpu, "over_limit_error");
    if (stays.empty() && patience.Lasts(left, MonotonicNow())) {
      std::this_thread::sleep_for(kAskStateAgain);
      continue;
    }
    return Fail(EBUSY,
                "the limit is set, but " + FormatSize(left) +
                    " more are on the GPU: " + (stays.empty() ? "stalled, no progress for 30 s" : stays),
                "see 'tessera gpus' and 'tessera ps --json'");
  }
}

// The API path of a vGPU.
Result<std::string> PathOf(const std::string& name) {
  if (auto fits = CheckName(name); !fits) return std::unexpected(fits.error());
  return "/v1/vgpus/" + name;
}

}  // namespace

Table VgpuTable(const Json& vgpus) {
  Table table({{"NAME"},
               {"GPU", Align::kRight},
               {"MEMORY", Align::kRight},
               {"MAX", Align::kRight},
               {"PEAK", Align::kRight},
               {"COMPUTE", Align::kRight},
               {"WEIGHT", Align::kRight},
               {"PRIORITY", Align::kRight},
               {"NOW %", Align::kRight},
               {"STATE"},
               {"PROCESSES", Align::kRight}});
  for (const Json& vgpu : vgpus) {
    table.Add({TextField(vgpu, "name"), Count(vgpu, "gpu"), Size(vgpu, "memory_current_bytes"),
               Size(vgpu, "memory_max_bytes"), Size(vgpu, "memory_peak_bytes"), Compute(vgpu),
               Count(vgpu, "compute_weight"), Count(vgpu, "compute_priority"), Percent(vgpu, "compute_current_pct"),
               State(vgpu), std::to_string(Field(vgpu, "processes").size())});
  }
  return table;
}

std::string VgpuText(const Json& vgpu) {
  const bool ephemeral = BoolField(vgpu, "ephemeral");
  const std::string owner = Count(vgpu, "owner_pid");
  const std::pair<const char*, std::string> lines[] = {
      {"name", TextField(vgpu, "name")},
      {"gpu", Count(vgpu, "gpu") + " (" + TextField(vgpu, "gpu_uuid") + ")"},
      {"user", Count(vgpu, "uid")},
      {"lives", ephemeral ? "as long as process " + owner : "until it is removed"},
      {"memory", Size(vgpu, "memory_current_bytes") + " of " + Size(vgpu, "memory_max_bytes")},
      {"memory request", Size(vgpu, "memory_request_bytes")},
      {"memory limit", Size(vgpu, "memory_limit_bytes")},
      {"memory peak", Size(vgpu, "memory_peak_bytes")},
      {"memory available", Size(vgpu, "memory_available_bytes")},
      {"memory on GPU", Size(vgpu, "memory_resident_bytes")},
      {"memory pinned", Pinned(vgpu)},
      {"memory swapped", Swapped(vgpu)},
      {"memory moved", Moved(vgpu)},
      {"memory pressure", Pressure(Field(vgpu, "memory_pressure"))},
      {"out of memory", Count(vgpu, "oom_events") + " times"},
      {"compute request", Percent(vgpu, "compute_request_pct") + " %"},
      {"compute limit", Percent(vgpu, "compute_limit_pct") + " %"},
      {"compute weight", Count(vgpu, "compute_weight")},
      {"compute priority", Count(vgpu, "compute_priority")},
      {"goal", Goal(vgpu)},
      {"bursts", Bursts(Field(vgpu, "bursts"))},
      {"compute slice", Slice(vgpu)},
      {"gang", Gang(vgpu)},
      {"labels", Labels(vgpu)},
      {"space", Space(vgpu)},
      {"compute now", Percent(vgpu, "compute_current_pct") + " %"},
      {"GPU time", Time(vgpu, "compute_busy_us")},
      {"compute pressure", Pressure(Field(vgpu, "compute_pressure"))},
      {"waited", Waited(vgpu)},
      {"state", TextField(vgpu, "state")},
      {"frozen", Frozen(vgpu)},
      {"processes", Field(vgpu, "processes").empty() ? "none" : Processes(vgpu)},
  };
  std::string text;
  for (const auto& [title, value] : lines) {
    text += title + std::string(18 - std::string_view(title).size(), ' ') + value + "\n";
  }
  return text;
}

Result<int> ListVgpus(const Common& common, bool quiet) {
  Common as = common;
  as.json = common.json && !quiet;
  return List(as, "/v1/vgpus", "vgpus", [quiet](const Json& vgpus) {
    if (!quiet) return Print(VgpuTable(vgpus));
    for (const Json& vgpu : vgpus) Print(TextField(vgpu, "name") + "\n");
  });
}

Result<int> ShowVgpu(const Common& common, const std::string& name) {
  const auto path = PathOf(name);
  if (!path) return std::unexpected(path.error());
  const auto vgpu = ApiClient(common.RunDirectory()).Get(*path);
  if (!vgpu) return std::unexpected(vgpu.error());
  if (common.json) {
    PrintJson(*vgpu);
  } else {
    Print(VgpuText(*vgpu));
  }
  return 0;
}

Result<int> CreateVgpu(const Common& common, const std::string& name, const VgpuSettings& settings) {
  if (auto fits = CheckName(name); !fits) return std::unexpected(fits.error());
  auto body = RequestBody(settings);
  if (!body) return std::unexpected(body.error());
  (*body)["name"] = name;
  const auto vgpu = ApiClient(common.RunDirectory()).Post("/v1/vgpus", *body);
  if (!vgpu) return std::unexpected(vgpu.error());
  if (common.json) PrintJson(*vgpu);
  return 0;
}

Result<int> SetVgpu(const Common& common, const std::string& name, const VgpuSettings& settings) {
  if (settings.Empty())
    return Fail(
        EINVAL, "nothing to set",
        "use --memory, --memory-request, --swap-max, --compute, --weight, --priority, --goal, --gang, --label or --sm");
  const auto path = PathOf(name);
  if (!path) return std::unexpected(path.error());
  const auto body = RequestBody(settings);
  if (!body) return std::unexpected(body.error());
  const ApiClient client(common.RunDirectory());
  auto vgpu = client.Patch(*path + "?wait=false", *body);
  if (vgpu && !settings.memory.empty()) vgpu = AwaitLimit(client, *path);
  if (!vgpu) return std::unexpected(vgpu.error());
  if (common.json) PrintJson(*vgpu);
  return 0;
}

Result<int> RecordVgpus(const Common& common, const RecordTimes& times) {
  const auto every = ParseDuration(times.every);
  if (!every) return std::unexpected(every.error());
  const auto lasts = times.lasts.empty() ? Result<Nanos>(kNever) : ParseDuration(times.lasts);
  if (!lasts) return std::unexpected(lasts.error());
  if (*every < 100 * kMillisecond) return Fail(ERANGE, "'" + times.every + "' is too short", "give 100ms or more");
  const ApiClient client(common.RunDirectory());
  // Wall clock times that never go back, whatever is done to the clock.
  const Nanos begin = MonotonicNow();
  const Nanos wall = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() - begin;
  UseRecord record;
  for (Nanos next = begin;; next += *every) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<Nanos>(next - MonotonicNow(), 0)));
    auto answer = client.Get("/v1/vgpus");
    if (!answer && next == begin) return std::unexpected(answer.error());
    if (next == begin) Print(UseRecord::kColumns);
    // A daemon that is started anew is a gap in the record.
    if (answer) Print(record.Rows(Field(*answer, "vgpus"), MonotonicNow() + wall));
    if (!answer) PrintError(answer.error());
    std::fflush(stdout);
    if (next - begin >= *lasts) return 0;
  }
}

Result<int> RemoveVgpu(const Common& common, const std::string& name, bool force) {
  const auto path = PathOf(name);
  if (!path) return std::unexpected(path.error());
  const auto gone = ApiClient(common.RunDirectory()).Delete(*path + (force ? "?force=1" : ""));
  if (!gone) return std::unexpected(gone.error());
  return 0;
}

}  // namespace tessera::cli
