#include "server/clients/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ranges>
#include <utility>

#include "base/descriptor.h"
#include "guard/supervisor/filter.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr const char* kUnread = "does not read its replies";

std::int64_t WallClockUs() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

// What people will read in tables: without bytes that a terminal acts on.
std::string Printable(std::string_view text) {
  std::string printable(text);
  for (char& c : printable) c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return printable;
}

Error OtherVersion(std::uint16_t version) {
  return {EPROTO,
          fmt::format("the program speaks protocol version {}, tesserad " TESSERA_VERSION " speaks {}", version,
                      wire::kProtocolVersion),
          "use shim and daemon of the same release"};
}

}  // namespace

Session::Session(std::uint64_t id, UniqueFd socket, const ucred& peer, VGpuTable& table, VGpuTable::Gpus& gpus,
                 const Config& config, ChannelServer& channels, GuestServer& guests, Exports& exports)
    : id_(id),
      socket_(std::move(socket)),
      peer_(peer),
      table_(table),
      gpus_(gpus),
      config_(config),
      channels_(channels),
      guests_(guests),
      exports_(exports),
      joined_(gpus.size()),
      processes_(gpus.size()) {}

Session::~Session() { Close(); }

void Session::ReadPending(int most) {
  if (reading_ || closed_) return;
  reading_ = true;
  alignas(8) std::array<std::byte, wire::kMaxMessageBytes> buffer;
  for (int n = 0; n < most && !closed_; ++n) {
    for (UniqueFd& fd : received_) fd.Reset();
    const std::span takes = CanCloseNoMore() ? std::span<UniqueFd>() : std::span(received_);
    const ssize_t length = ReceivePacket(socket_.Get(), buffer, takes, received_count_);
    if (length < 0 && errno == EAGAIN) break;
    Complaint complaint = nullptr;
    if (!TakesPrompt()) {
      complaint = "sent a file that is no memory";
    } else if (length > 0) {
      complaint = Act(std::span(buffer).first(static_cast<std::size_t>(length)));
      if (!complaint) continue;
    } else if (length < 0 && errno == EMSGSIZE) {
      complaint = "sent a packet that is too long";
    }
    if (complaint) log::Warn("process {} {}: connection closed", peer_.pid, complaint);
    Close();
  }
  reading_ = false;
}

// Whether none of the descriptors that came is one for whose close this thread might wait. Those that are go.
bool Session::TakesPrompt() {
  bool all = true;
  for (UniqueFd& file : std::span(received_).first(received_count_)) {
    if (IsPrompt(file.Get())) continue;
    CloseElsewhere(std::move(file));
    all = false;
  }
  return all;
}

void Session::Close() {
  if (std::exchange(closed_, true)) return;
  exports_.RemoveAllOf(id_);
  for (auto& process : processes_) {
    if (!process) continue;
    guests_.Closing(*process);
    Gpu(*process).Leave(*process);
    process.reset();
  }
  if (greeted_ && !observer_ && !guards_) guests_.Closed(peer_.pid);
  if (observer_ || guards_) return;
  for (const VgpuId id : joined_) {
    if (id != 0) table_.Left(id);
  }
}

bool Session::Uses(VgpuId vgpu) const {
  return std::ranges::any_of(processes_, [&](const auto& process) { return process && process->vgpu->id == vgpu; });
}

Session::Complaint Session::Act(std::span<const std::byte> packet) {
  wire::Header header;
  switch (wire::ReadHeader(packet, header)) {
    case wire::Fault::kNone:
      break;
    case wire::Fault::kOtherVersion:
      Refuse(OtherVersion(header.version));
      return "speaks another protocol version";
    case wire::Fault::kTooShort:
    case wire::Fault::kBadMagic:
    case wire::Fault::kWrongLength:
      return "sent something that is no message";
  }
  if (const auto hello = wire::ReadBody<wire::Hello>(header, packet)) return On(*hello);
  if (const auto guard = wire::ReadBody<wire::Guard>(header, packet)) return On(*guard);
  if (wire::ReadBody<wire::Listener>(header, packet)) return OnListener();
  if (!greeted_ || guards_) return "did not begin with Hello";
  if (const auto object = wire::ReadBody<wire::Object>(header, packet)) return On(*object);
  if (const auto attach = wire::ReadBody<wire::Attach>(header, packet)) return On(*attach);
  if (const auto query = wire::ReadBody<wire::Query>(header, packet)) return On(*query);
  return OnProcess(header, packet);
}

// Messages about a GPU that the program has attached to.
Session::Complaint Session::OnProcess(const wire::Header& header, std::span<const std::byte> packet) {
  if (header.gpu >= processes_.size() || !processes_[header.gpu]) return "spoke of a GPU that it is not attached to";
  Process& process = *processes_[header.gpu];
  if (const auto wants = wire::ReadBody<wire::Wants>(header, packet)) return On(process, *wants);
  if (const auto idle = wire::ReadBody<wire::Idle>(header, packet)) return On(process, *idle);
  if (const auto released = wire::ReadBody<wire::Released>(header, packet)) return On(process, *released);
  if (const auto reserve = wire::ReadBody<wire::Reserve>(header, packet)) return On(process, *reserve);
  if (const auto returned = wire::ReadBody<wire::Return>(header, packet)) return On(process, *returned);
  if (const auto context = wire::ReadBody<wire::Context>(header, packet)) return On(process, *context);
  if (const auto room = wire::ReadBody<wire::Room>(header, packet)) return On(process, *room);
  if (const auto line = wire::ReadBody<wire::Line>(header, packet)) return On(process, *line);
  if (const auto part = wire::ReadBody<wire::Export>(header, packet)) return On(process, *part);
  if (const auto unexport = wire::ReadBody<wire::Unexport>(header, packet)) return On(process, *unexport);
  if (const auto import = wire::ReadBody<wire::Import>(header, packet)) return On(process, *import);
  return "sent a message of an unknown type or length";
}

Session::Complaint Session::On(const wire::Hello& hello) {
  if (greeted_) return "said Hello twice";
  auto chosen = Choose(wire::TextOf(hello.vgpus));
  if (!chosen) return Refuse(chosen.error());
  greeted_ = true;
  observer_ = hello.observer != 0;
  program_ = Printable(wire::TextOf(hello.program));
  for (VGpu* vgpu : *chosen) {
    joined_[vgpu->gpu] = vgpu->id;
    if (!observer_) table_.Joined(*vgpu);
  }
  return Send(
      wire::Welcome{.session = id_, .grace_ns = config_.client_grace, .block_on_loss = config_.block_on_daemon_loss});
}

Session::Complaint Session::On(const wire::Guard& guard) {
  if (greeted_) return "said Guard after another greeting";
  auto chosen = Choose(wire::TextOf(guard.vgpus));
  if (!chosen) return Refuse(chosen.error());
  greeted_ = guards_ = true;
  program_ = Printable(wire::TextOf(guard.program));
  for (VGpu* vgpu : *chosen) joined_[vgpu->gpu] = vgpu->id;
  return Send(
      wire::Welcome{.session = id_, .grace_ns = config_.client_grace, .block_on_loss = config_.block_on_daemon_loss});
}

Session::Complaint Session::OnListener() {
  if (!guards_) return "sent a listener without Guard";
  if (!received_[0] || !guard::IsListener(received_[0].Get())) return "sent no listener";
  if (std::exchange(listened_, true)) return "sent a second listener";
  std::vector<VgpuId> vgpus;
  std::ranges::copy_if(joined_, std::back_inserter(vgpus), [](VgpuId id) { return id != 0; });
  if (auto served = guests_.Guard(std::move(received_[0]), std::move(vgpus), peer_.pid, program_); !served)
    return Refuse(served.error());
  return Send(wire::Welcome{.session = id_});
}

Session::Complaint Session::On(const wire::Object& object) {
  using Kind = channel::ObjectEvent::Kind;
  if (object.kind != static_cast<std::uint32_t>(Kind::kAlloc) && object.kind != static_cast<std::uint32_t>(Kind::kFree))
    return "told of something that cannot be done to an object";
  channels_.Observe(peer_.pid,
                    {.kind = static_cast<Kind>(object.kind),
                     .fd = object.fd,
                     .client = object.client,
                     .parent = object.parent,
                     .object = object.object,
                     .cls = object.cls,
                     .detail = object.detail},
                    ChannelServer::Source::kShim);
  return nullptr;
}

// The vGPUs of a comma-separated list, if this program may join them.
Result<std::vector<VGpu*>> Session::Choose(std::string_view names) const {
  std::vector<VGpu*> chosen;
  for (auto part : std::views::split(names, ',')) {
    auto vgpu = table_.Get(std::string_view(part.begin(), part.end()));
    if (!vgpu) return std::unexpected(vgpu.error());
    if (!MayJoin((*vgpu)->spec, peer_.uid)) {
      return Fail(EACCES, fmt::format("vGPU {} belongs to user {}", (*vgpu)->spec.name, (*vgpu)->spec.uid),
                  "make one of your own, or let root make one for everybody");
    }
    const auto same_gpu = std::ranges::find(chosen, (*vgpu)->gpu, &VGpu::gpu);
    if (same_gpu != chosen.end()) {
      return Fail(EINVAL,
                  fmt::format("vGPUs {} and {} are on the same GPU", (*same_gpu)->spec.name, (*vgpu)->spec.name),
                  "name one for each GPU");
    }
    chosen.push_back(*vgpu);
  }
  if (chosen.empty())
    return Fail(EINVAL, "no vGPU is named", "set TESSERA_VGPU, or start the program with tessera run");
  return chosen;
}

Session::Complaint Session::On(const wire::Attach& attach) {
  if (observer_) return "is an observer and cannot attach";
  auto process = Attach(attach);
  if (!process) return Refuse(process.error());
  GpuServer& gpu = Gpu(**process);
  wire::Attached attached{
      .context_bytes = gpu.Memory().ContextBytes(), .memory_total = gpu.Info().memory_total, .swaps = gpu.Swaps()};
  wire::SetText(attached.vgpu, (*process)->vgpu->spec.name);
  const UniqueFd line = gpu.Swaps() ? gpu.Residency().MakeLine(**process) : UniqueFd();
  const int fds[] = {(*process)->page.Fd(), line.Get()};
  return Send(attached, gpu.Index(), std::span(fds, line ? 2 : 1));
}

Result<Process*> Session::Attach(const wire::Attach& attach) {
  const GpuServer* found = FindGpu(attach.gpu);
  const VgpuId joined = found ? joined_[found->Index()] : 0;
  VGpu* vgpu = joined ? table_.Find(joined) : nullptr;
  if (!vgpu) {
    return Fail(ENODEV, fmt::format("no vGPU of this program is on {}", FormatUuid(attach.gpu)),
                "name a vGPU for each GPU, or hide the others with CUDA_VISIBLE_DEVICES");
  }
  auto& slot = processes_[vgpu->gpu];
  if (slot) return slot.get();
  if (vgpu->removed) return Fail(ENODEV, fmt::format("vGPU {} was removed", vgpu->spec.name));
  auto page = SharedPage::Create(vgpu->gpu);
  if (!page) return std::unexpected(page.error());
  slot = std::make_unique<Process>(std::move(*page), peer_.pid);
  slot->who.uid = peer_.uid;
  slot->who.program = program_;
  slot->who.started_us = WallClockUs();
  slot->residence.room = std::min(attach.room_bytes, table_.Gpu(*vgpu).Info().memory_total);
  slot->page->guard.unsafe = attach.unsafe_bytes;
  table_.Gpu(*vgpu).Join(*vgpu, *slot, attach.memory_bytes, attach.contexts);
  channels_.ThawLeftOver(vgpu->gpu, peer_.pid);  // a daemon before this one may have been killed while it was frozen
  if (attach.works != 0) table_.Gpu(*vgpu).Wants(*slot, false);
  return slot.get();
}

Session::Complaint Session::On(const wire::Query& query) {
  const GpuServer* gpu = FindGpu(query.gpu);
  const VgpuId joined = gpu ? joined_[gpu->Index()] : 0;
  const VGpu* vgpu = joined ? table_.Find(joined) : nullptr;
  if (!vgpu || vgpu->removed) {
    return Refuse({ENODEV, fmt::format("no vGPU of this program is on {}", FormatUuid(query.gpu)), ""});
  }
  const auto memory = gpu->Memory().FiguresOf(vgpu->id);
  wire::View view{.memory_max = memory.max, .memory_used = memory.current};
  view.compute_pct = static_cast<std::uint32_t>(std::lround(gpu->ComputePercent(*vgpu, MonotonicNow())));
  for (const Process* process : vgpu->processes) {
    if (view.processes == std::size(view.process)) break;
    view.process[view.processes++] = {.pid = process->pid, .memory_bytes = process->memory.Current()};
  }
  return Send(view, gpu->Index());
}

Session::Complaint Session::On(Process& process, const wire::Reserve& reserve) {
  GpuServer& gpu = Gpu(process);
  const std::uint64_t bytes = gpu.Reserve(process, reserve.bytes);
  return Send(wire::Reserved{bytes, gpu.Memory().Ledger().Available(process.vgpu->id)}, gpu.Index());
}

Session::Complaint Session::On(Process& process, const wire::Return& returned) {
  Gpu(process).Return(process, returned.bytes);
  return nullptr;
}

Session::Complaint Session::On(Process& process, const wire::Context& context) {
  GpuServer& gpu = Gpu(process);
  if (context.delta == -1) {
    gpu.DropContext(process);
    return nullptr;
  }
  if (context.delta != 1) return "sent a context count that cannot be";
  const std::uint64_t bytes = gpu.AddContext(process);
  return Send(wire::Reserved{bytes, gpu.Memory().Ledger().Available(process.vgpu->id)}, gpu.Index());
}

Session::Complaint Session::On(Process& process, const wire::Room& room) {
  GpuServer& gpu = Gpu(process);
  if (!gpu.Swaps()) return "asked for room where none is counted";
  const auto answer = gpu.Residency().Ask(process, room.bytes);
  return Send(
      wire::RoomGranted{.bytes = answer == RoomAnswer::kGranted ? room.bytes : 0, .wait = answer == RoomAnswer::kWait},
      gpu.Index());
}

Session::Complaint Session::On(Process& process, const wire::Line&) {
  GpuServer& gpu = Gpu(process);
  const UniqueFd line = gpu.Swaps() ? gpu.Residency().MakeLine(process) : UniqueFd();
  if (!line) return Refuse({EAGAIN, "there is no line to a mover"});
  const int fd = line.Get();
  return Send(wire::LineOpened{}, gpu.Index(), {&fd, 1});
}

Session::Complaint Session::On(Process& process, const wire::Export& part) {
  const std::uint32_t gpu = process.vgpu->gpu;
  const auto added = exports_.Add(id_, peer_.uid, gpu, part, std::span(received_).first(received_count_));
  process.exported = exports_.BytesOf(id_, gpu);
  return added ? Send(wire::Exported{}, gpu) : Refuse(added.error());
}

Session::Complaint Session::On(Process& process, const wire::Unexport& unexport) {
  const std::uint32_t gpu = process.vgpu->gpu;
  exports_.Remove(id_, unexport.key);
  process.exported = exports_.BytesOf(id_, gpu);
  return Send(wire::Exported{}, gpu);
}

// Whether the GPU that the program wants it for can reach it is for the driver to say.
Session::Complaint Session::On(Process&, const wire::Import& import) {
  const auto found = exports_.Find(import.key, peer_.uid);
  if (!found) return Refuse(found.error());
  const Exports::Entry& entry = **found;
  if (!processes_[entry.gpu])
    return Refuse({EACCES, fmt::format("the memory of this IPC handle is on GPU {}, which this program does not use",
                                       entry.gpu)});
  if (import.first >= entry.chunks.size())
    return Refuse({EINVAL, "the memory of this IPC handle has not so many chunks"});
  std::vector<int> fds;
  for (const UniqueFd& fd : std::span(entry.chunks)
                                .subspan(import.first)
                                .first(std::min(kMostDescriptors, entry.chunks.size() - import.first)))
    fds.push_back(fd.Get());
  return Send(wire::Imported{.bytes = entry.terms.bytes,
                             .offset = entry.terms.offset,
                             .chunk_bytes = entry.terms.chunk_bytes,
                             .chunks = entry.terms.chunks,
                             .count = static_cast<std::uint32_t>(fds.size())},
              entry.gpu, fds);
}

Session::Complaint Session::On(Process& process, const wire::Wants& wants) {
  Gpu(process).Wants(process, wants.waits != 0);
  return nullptr;
}

Session::Complaint Session::On(Process& process, const wire::Idle& idle) {
  Gpu(process).Idle(process, idle.since);
  return nullptr;
}

Session::Complaint Session::On(Process& process, const wire::Released& released) {
  Gpu(process).Released(process, released.drained_at, released.epoch);
  return nullptr;
}

GpuServer* Session::FindGpu(const wire::Uuid& uuid) const {
  const auto found = std::ranges::find_if(gpus_, [&](const auto& gpu) { return gpu->Info().uuid == uuid; });
  return found == gpus_.end() ? nullptr : found->get();
}

Session::Complaint Session::Refuse(const Error& error) {
  wire::Refused refused{.code = error.code};
  wire::SetText(refused.text, error.Text());
  return Send(refused);
}

template <typename Body>
Session::Complaint Session::Send(const Body& body, std::uint32_t gpu, std::span<const int> fds) {
  if (SendPacket(socket_.Get(), wire::BytesOf(wire::Make(body, gpu)), fds)) return nullptr;
  return errno == EPIPE || errno == ECONNRESET ? "closed its socket before its reply came" : kUnread;
}

}  // namespace tessera::server
