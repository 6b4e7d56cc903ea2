#include "server/clients/process_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/descriptor.h"

namespace tessera::server {

Complaint ProcessMessages::Act(const wire::Header& header, std::span<const std::byte> packet,
                               std::span<UniqueFd> received, Nanos now) {
  if (header.gpu >= processes_.size() || !processes_[header.gpu]) return "spoke of a GPU that it is not attached to";
  Process& process = *processes_[header.gpu];
  TimeControl& time = Gpu(process).Time();
  if (const auto wants = wire::ReadBody<wire::Wants>(header, packet)) {
    time.Wants(process, wants->waits != 0, now);
  } else if (const auto idle = wire::ReadBody<wire::Idle>(header, packet)) {
    time.Idle(process, idle->since, now);
  } else if (const auto released = wire::ReadBody<wire::Released>(header, packet)) {
    time.Released(process, released->drained_at, released->epoch, now);
  } else if (wire::ReadBody<wire::Called>(header, packet)) {
    if (called_) called_(process.pid, now);
  } else if (const auto part = wire::ReadBody<wire::Export>(header, packet)) {
    return Export(process, *part, received);
  } else if (const auto unexport = wire::ReadBody<wire::Unexport>(header, packet)) {
    return Unexport(process, *unexport);
  } else if (const auto import = wire::ReadBody<wire::Import>(header, packet)) {
    return Import(*import);
  } else {
    return ActOnMemory(process, header, packet, now);
  }
  return nullptr;
}

Complaint ProcessMessages::ActOnMemory(Process& process, const wire::Header& header, std::span<const std::byte> packet,
                                       Nanos now) {
  if (const auto reserve = wire::ReadBody<wire::Reserve>(header, packet)) return Reserve(process, reserve->bytes, now);
  if (const auto blank = wire::ReadBody<wire::Blank>(header, packet)) return Blank(process, blank->bytes, now);
  if (const auto context = wire::ReadBody<wire::Context>(header, packet)) return Context(process, context->delta, now);
  if (const auto room = wire::ReadBody<wire::Room>(header, packet)) return Room(process, *room, now);
  if (wire::ReadBody<wire::Line>(header, packet)) return Line(process, now);
  const auto returned = wire::ReadBody<wire::Return>(header, packet);
  if (!returned) return "sent a message of an unknown type or length";
  Gpu(process).Requests().Return(process, returned->bytes, now);
  return nullptr;
}

Complaint ProcessMessages::Reserve(Process& process, std::uint64_t bytes, Nanos now) {
  GpuServer& gpu = Gpu(process);
  const std::uint64_t charged = gpu.Requests().Reserve(process, bytes, now);
  return replies_.Send(wire::Reserved{.bytes = charged, .available = gpu.Memory().Ledger().Available(process.vgpu->id)},
                       gpu.Index());
}

Complaint ProcessMessages::Blank(Process& process, std::uint64_t bytes, Nanos now) {
  GpuServer& gpu = Gpu(process);
  using enum MemoryServer::BlankAnswer;
  const auto answer = gpu.Requests().MayLeaveBlank(process, bytes, now);
  return replies_.Send(wire::Reserved{.bytes = answer == kYes ? bytes : 0,
                                      .available = gpu.Memory().Ledger().Available(process.vgpu->id),
                                      .wait = answer == kAskAgain},
                       gpu.Index());
}

Complaint ProcessMessages::Context(Process& process, std::int32_t delta, Nanos now) {
  GpuServer& gpu = Gpu(process);
  if (delta == -1) {
    gpu.Requests().DropContext(process);
    return nullptr;
  }
  if (delta != 1) return "sent a context count that cannot be";
  const MemoryRequests::Granted granted = gpu.Requests().AddContext(process, now);
  return replies_.Send(
      wire::Reserved{
          .bytes = granted.bytes, .available = gpu.Memory().Ledger().Available(process.vgpu->id), .wait = granted.wait},
      gpu.Index());
}

Complaint ProcessMessages::Room(Process& process, const wire::Room& room, Nanos now) {
  GpuServer& gpu = Gpu(process);
  if (!gpu.Swaps()) return "asked for room where none is counted";
  using enum sched::RoomAnswer::Kind;
  const auto answer = gpu.Residency().Ask(process, room.bytes, room.pins != 0, now);
  return replies_.Send(wire::RoomGranted{.bytes = answer == kGrant ? room.bytes : 0, .wait = answer == kWait},
                       gpu.Index());
}

Complaint ProcessMessages::Line(Process& process, Nanos now) {
  GpuServer& gpu = Gpu(process);
  const UniqueFd line = gpu.Swaps() ? gpu.Residency().MakeLine(process, now) : UniqueFd();
  if (!line) return replies_.Refuse({EAGAIN, "there is no line to a mover"});
  const int fd = line.Get();
  return replies_.Send(wire::LineOpened{}, gpu.Index(), {&fd, 1});
}

Complaint ProcessMessages::Export(Process& process, const wire::Export& part, std::span<UniqueFd> received) {
  const std::uint32_t gpu = process.vgpu->gpu;
  const auto added = exports_.Add(session_, uid_, gpu, part, received);
  process.exported = exports_.BytesOf(session_, gpu);
  return added ? replies_.Send(wire::Exported{}, gpu) : replies_.Refuse(added.error());
}

Complaint ProcessMessages::Unexport(Process& process, const wire::Unexport& unexport) {
  const std::uint32_t gpu = process.vgpu->gpu;
  exports_.Remove(session_, unexport.key);
  process.exported = exports_.BytesOf(session_, gpu);
  return replies_.Send(wire::Exported{}, gpu);
}

// The program need not have used the memory's GPU itself. The driver says whether the GPU that it wants the memory for
// can reach it.
Complaint ProcessMessages::Import(const wire::Import& import) {
  const auto found = exports_.Find(import.key, uid_);
  if (!found) return replies_.Refuse(found.error());
  const Exports::Entry& entry = **found;
  if (joined_[entry.gpu] == 0)
    return replies_.Refuse(
        {EACCES, fmt::format("the memory of this IPC handle is on GPU {}, where this program has no vGPU", entry.gpu),
         "name a vGPU for each GPU that the program uses"});
  if (import.first >= entry.chunks.size())
    return replies_.Refuse({EINVAL, "the memory of this IPC handle has fewer chunks than were asked for"});
  std::vector<int> fds;
  for (const UniqueFd& fd : std::span(entry.chunks)
                                .subspan(import.first)
                                .first(std::min(wire::kMostExported, entry.chunks.size() - import.first)))
    fds.push_back(fd.Get());
  return replies_.Send(wire::Imported{.gpu = gpus_[entry.gpu]->Info().uuid,
                                      .bytes = entry.terms.bytes,
                                      .offset = entry.terms.offset,
                                      .chunk_bytes = entry.terms.chunk_bytes,
                                      .chunks = entry.terms.chunks,
                                      .count = static_cast<std::uint32_t>(fds.size())},
                       entry.gpu, fds);
}

}  // namespace tessera::server
