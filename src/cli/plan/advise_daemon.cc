#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/text/counted.h"
#include "cli/plan/advise_sources.h"
#include "cli/terminal/output.h"
#include "client/api_client.h"
#include "client/json_fields.h"

namespace tessera::cli {
namespace {

using client::Field;
using client::IntegerField;
using client::Json;
using client::NumberField;
using client::TextField;

// Counters of a vGPU, when they were read last.
struct Meter {
  std::string tag;  // another vGPU of the same name has another one
  std::uint64_t busy_us = 0, waited_us = 0, throttled_us = 0;
};

// The part of `passed` in which a counter went up from `before` to `now`; it may be a little more than all of it,
// because the daemon did not read its clock at the same moment.
double PartOf(std::uint64_t before, std::uint64_t now, Nanos passed) {
  if (now <= before || passed <= 0) return 0;
  return std::min(1.0, static_cast<double>(now - before) * kMicrosecond / static_cast<double>(passed));
}

void TakeTerms(const Json& json, sched::MeteredVgpu& vgpu) {
  vgpu.request_pct = NumberField(json, "compute_request_pct");
  vgpu.limit_pct = NumberField(json, "compute_limit_pct");
  vgpu.memory_request = IntegerField(json, "memory_request_bytes");
  vgpu.memory_limit = IntegerField(json, "memory_limit_bytes");
  vgpu.space = TextField(json, "space");
  vgpu.sm_pct = vgpu.space.empty() ? 100 : NumberField(json, "sm_limit_pct");
  vgpu.goal = !Field(json, "goal").is_null();
}

void TakeGpus(const Json& gpus, SeenFleetBuilder& builder) {
  for (const Json& json : gpus) {
    sched::MeteredGpu& gpu = builder.Gpu(builder.GpuIndex("", std::to_string(IntegerField(json, "index"))));
    gpu.type = TextField(json, "name");
    const std::uint64_t total = IntegerField(json, "memory_total_bytes");
    gpu.memory = total - std::min(total, IntegerField(json, "memory_reserve_bytes"));
  }
}

// A sample of each vGPU that was there before, too.
Result<void> TakeVgpus(const Json& vgpus, Nanos passed, std::size_t moment, std::map<std::string, Meter>& meters,
                       SeenFleetBuilder& builder) {
  std::map<std::string, Meter> now;
  for (const Json& json : vgpus) {
    const std::string name = TextField(json, "name");
    const Meter meter = {.tag = Field(json, "tag").dump(),
                         .busy_us = IntegerField(json, "compute_busy_us"),
                         .waited_us = IntegerField(json, "compute_waited_us"),
                         .throttled_us = IntegerField(json, "compute_throttled_us")};
    now[name] = meter;
    const auto before = meters.find(name);
    if (before == meters.end() || before->second.tag != meter.tag) continue;
    const std::size_t index = builder.VgpuIndex("", name);
    const std::size_t gpu = builder.GpuIndex("", std::to_string(IntegerField(json, "gpu")));
    builder.Vgpu(index).gpu = gpu;
    TakeTerms(json, builder.Vgpu(index));
    const Json& labels = Field(json, "labels");
    if (const std::string pod = TextField(labels, "pod"); !pod.empty())
      builder.SetPod(index, {.namespace_name = TextField(labels, "namespace"), .pod = pod});
    const auto sample = builder.Sample(index, moment);
    if (!sample) return std::unexpected(sample.error());
    **sample = {.there = true,
                .duty = PartOf(before->second.busy_us, meter.busy_us, passed),
                .waited = PartOf(before->second.waited_us, meter.waited_us, passed),
                .throttled = PartOf(before->second.throttled_us, meter.throttled_us, passed),
                .memory = IntegerField(json, "memory_current_bytes"),
                .violated = TextField(Field(json, "bursts"), "verdict") == "missed"};
  }
  meters = std::move(now);
  return {};
}

}  // namespace

Result<SeenFleet> WatchDaemon(const std::string& run_dir, Nanos length, Nanos every) {
  const client::ApiClient daemon(run_dir);
  SeenFleetBuilder builder;
  const auto gpus = daemon.Get("/v1/gpus");
  if (!gpus) return std::unexpected(gpus.error());
  TakeGpus(Field(*gpus, "gpus"), builder);
  std::map<std::string, Meter> meters;
  const Nanos begin = MonotonicNow();
  Nanos last = begin;
  std::size_t moment = 0;
  for (Nanos next = begin; next <= begin + length; next += every) {
    if (const Nanos left = next - MonotonicNow(); left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
    const auto vgpus = daemon.Get("/v1/vgpus");
    if (!vgpus) return std::unexpected(vgpus.error());
    const Nanos now = MonotonicNow();
    // The first answer only says from where the meters count.
    const bool first = next == begin;
    if (auto taken = TakeVgpus(Field(*vgpus, "vgpus"), now - last, moment, meters, builder); !taken)
      return std::unexpected(taken.error());
    if (!first) ++moment;
    last = now;
  }
  return builder.Finish(Counted(moment, "sample") + " of " +
                        FormatMicroseconds(static_cast<std::uint64_t>(every / kMicrosecond)) + " each");
}

}  // namespace tessera::cli
