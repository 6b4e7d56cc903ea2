#include "server/gpu/memory_requests.h"

#include <fmt/format.h>

#include <utility>

#include "base/size.h"
#include "server/model/vgpu.h"
#include "server/record/events.h"

namespace tessera::server {

MemoryRequests::MemoryRequests(std::uint32_t gpu, MemoryServer& memory, Placement& placement, const GpuTrace& trace,
                               Hooks hooks)
    : gpu_(gpu), memory_(memory), placement_(placement), trace_(trace), hooks_(std::move(hooks)) {}

std::uint64_t MemoryRequests::Reserve(Process& process, std::uint64_t bytes, Nanos now) {
  hooks_.activity();
  const std::uint64_t charged = memory_.Reserve(process.memory, bytes, now);
  trace_.NoteMemory(*process.vgpu, now);
  if (charged < bytes) ReportRefusal(process, bytes, now);
  return charged;
}

MemoryServer::BlankAnswer MemoryRequests::MayLeaveBlank(Process& process, std::uint64_t bytes, Nanos now) {
  const auto answer = memory_.HasPlaceForBlank(process.memory, now);
  if (answer != MemoryServer::BlankAnswer::kNo) return answer;
  ReportRefusal(process,
                fmt::format("{} maps little memory over many addresses: {} more of host memory would hold nothing, and "
                            "there is none to spare; map it closer together, or raise swap.size",
                            process.who.program, FormatSize(bytes)),
                now);
  return answer;
}

void MemoryRequests::Return(Process& process, std::uint64_t bytes, Nanos now) {
  hooks_.activity();
  memory_.Return(process.memory, bytes);
  trace_.NoteMemory(*process.vgpu, now);
}

MemoryRequests::Granted MemoryRequests::AddContext(Process& process, Nanos now) {
  const std::uint64_t bytes = memory_.ContextBytes();
  if (placement_.Swaps() && !process.who.guest && memory_.HasPlaceForContext(process.memory, now)) {
    using enum sched::RoomAnswer::Kind;
    const auto answer = placement_.Residency().AskForContext(process, bytes, now);
    if (answer != kGrant) return {.wait = answer == kWait};
  }
  const std::uint64_t charged = memory_.AddContext(process.memory, now);
  if (charged == 0) ReportRefusal(process, bytes, now);
  hooks_.contexts_changed();
  return {.bytes = charged};
}

void MemoryRequests::DropContext(Process& process) {
  hooks_.contexts_changed();
  memory_.DropContext(process.memory);
  // Without a context it has no channels, and nothing to do on the GPU.
  if (process.memory.contexts == 0) process.work.worked = false;
}

void MemoryRequests::Collect(const VGpu& vgpu, std::uint64_t bytes, Nanos now) { memory_.Collect(vgpu.id, bytes, now); }

bool MemoryRequests::Count(Process& process, std::uint64_t bytes, Nanos now) {
  hooks_.activity();
  const bool counted = memory_.Count(process.memory, bytes);
  if (!counted) ReportRefusal(process, bytes, now);
  return counted;
}

void MemoryRequests::CountAnyway(Process& process, std::uint64_t bytes) {
  hooks_.activity();
  memory_.CountAnyway(process.memory, bytes);
}

void MemoryRequests::NoteMeasured(Process& process, std::uint64_t bytes) {
  process.memory.BeginMeasurement();
  memory_.Reconcile(process.memory, bytes);
}

void MemoryRequests::ReportRefusal(Process& process, std::uint64_t bytes, Nanos now) const {
  const MemoryServer::Figures figures = memory_.FiguresOf(process.vgpu->id);
  ReportRefusal(process,
                fmt::format("{} asked for {}; {} of {} are free", process.who.program, FormatSize(bytes),
                            FormatSize(figures.available), FormatSize(figures.max)),
                now);
}

// A program that tries again and again is reported once a second.
void MemoryRequests::ReportRefusal(Process& process, const std::string& text, Nanos now) const {
  constexpr Nanos kSeldom = kSecond;
  Nanos& reported_at = process.work.refusal_reported_at;
  if (reported_at != 0 && now - reported_at < kSeldom) return;
  reported_at = now;
  events::Note({.type = EventType::kMemoryRefused,
                .gpu = gpu_,
                .vgpu = process.vgpu->spec.name,
                .pid = process.pid,
                .owner = process.vgpu->spec.uid,
                .user = process.who.uid,
                .text = text});
}

}  // namespace tessera::server
