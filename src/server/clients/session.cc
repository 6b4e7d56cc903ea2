#include "server/clients/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/descriptor.h"
#include "base/process/process_start.h"
#include "guard/supervisor/filter.h"
#include "server/record/log.h"
#include "server/spaces/own_sms.h"

namespace tessera::server {
namespace {

std::int64_t WallClockUs() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

// The text without bytes that a terminal acts on: people read it in tables.
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

Session::Session(std::uint64_t id, UniqueFd socket, const ucred& peer, Caller caller, const ClientServices& services,
                 Exports& exports)
    : id_(id),
      socket_(std::move(socket)),
      peer_(peer),
      caller_(std::move(caller)),
      services_(services),
      exports_(exports),
      joined_(services.gpus.size()),
      processes_(services.gpus.size()),
      messages_(id, peer.uid, processes_, joined_, services_.gpus, exports, replies_, services_.called) {}

Session::~Session() { Close(MonotonicNow()); }

void Session::ReadPending(int most, std::optional<Nanos> now) {
  if (reading_ || closed_) return;
  reading_ = true;
  alignas(8) std::array<std::byte, wire::kMaxMessageBytes> buffer;
  for (int n = 0; n < most && !closed_; ++n) {
    DropReceived();
    const std::span takes = CanCloseNoMore() ? std::span<UniqueFd>() : std::span(received_);
    const ssize_t length = ReceivePacket(socket_.Get(), buffer, takes, received_count_);
    if (length < 0 && errno == EAGAIN) break;
    const Nanos read_at = now ? *now : MonotonicNow();
    Complaint complaint = nullptr;
    if (!TakesPrompt()) {
      complaint = "sent a file descriptor that is not memory";
    } else if (length > 0) {
      complaint = Act(std::span(buffer).first(static_cast<std::size_t>(length)), read_at);
      if (!complaint) continue;
    } else if (length < 0 && errno == EMSGSIZE) {
      complaint = "sent a packet that is too long";
    }
    if (complaint) log::WarnOf(peer_.uid, "process {} {}: connection closed", peer_.pid, complaint);
    Close(read_at);
  }
  DropReceived();
  reading_ = false;
}

// What nobody took of the descriptors that came. This thread closes no device file of a program.
void Session::DropReceived() {
  for (UniqueFd& fd : received_) CloseDevice(std::move(fd));
}

// Whether all the descriptors that came can be examined without waiting. Drops those that cannot.
bool Session::TakesPrompt() {
  bool all = true;
  for (UniqueFd& file : std::span(received_).first(received_count_)) {
    if (IsPrompt(file.Get())) continue;
    CloseElsewhere(std::move(file));
    all = false;
  }
  return all;
}

void Session::Close(Nanos now) {
  if (std::exchange(closed_, true)) return;
  exports_.RemoveAllOf(id_);
  bool spoke = false;  // for the program, to which others may have connected in its name
  for (auto& process : processes_) {
    if (!process) continue;
    spoke = true;
    services_.guests.Closing(*process);
    services_.gpus[process->vgpu->gpu]->Leave(*process, now);
    process.reset();
  }
  if (spoke) {
    services_.guests.Closed(peer_.pid, now);
  } else if (told_) {
    services_.channels.ForgetWhenEnded(peer_.pid);
  }
  if (observer_ || guards_) return;
  for (const VgpuId id : joined_) {
    if (id != 0) services_.table.Left(id, now);
  }
}

bool Session::Uses(VgpuId vgpu) const {
  return std::ranges::any_of(processes_, [&](const auto& process) { return process && process->vgpu->id == vgpu; });
}

Complaint Session::Act(std::span<const std::byte> packet, Nanos now) {
  wire::Header header;
  switch (wire::ReadHeader(packet, header)) {
    case wire::Fault::kNone:
      break;
    case wire::Fault::kOtherVersion:
      replies_.Refuse(OtherVersion(header.version));
      return "speaks another protocol version";
    case wire::Fault::kTooShort:
    case wire::Fault::kBadMagic:
    case wire::Fault::kWrongLength:
      return "sent a packet that is not a message";
  }
  if (const auto hello = wire::ReadBody<wire::Hello>(header, packet)) return On(*hello);
  if (const auto guard = wire::ReadBody<wire::Guard>(header, packet)) return On(*guard);
  if (wire::ReadBody<wire::Listener>(header, packet)) return OnListener();
  if (!greeted_ || guards_) return "did not begin with Hello";
  if (const auto object = wire::ReadBody<wire::Object>(header, packet)) return On(*object, now);
  if (const auto unknown = wire::ReadBody<wire::Unknown>(header, packet)) return On(*unknown);
  if (const auto attach = wire::ReadBody<wire::Attach>(header, packet)) return On(*attach, now);
  if (const auto query = wire::ReadBody<wire::Query>(header, packet)) return On(*query, now);
  return messages_.Act(header, packet, std::span(received_).first(received_count_), now);
}

Complaint Session::On(const wire::Hello& hello) {
  if (greeted_) return "said Hello twice";
  auto chosen = services_.table.Choose(wire::TextOf(hello.vgpus), services_.authority, caller_);
  if (!chosen) return replies_.Refuse(chosen.error());
  if (hello.observer == 0) {
    if (auto fits = CheckSpace(*chosen); !fits) return replies_.Refuse(fits.error());
  }
  greeted_ = true;
  observer_ = hello.observer != 0;
  program_ = Printable(wire::TextOf(hello.program));
  for (VGpu* vgpu : *chosen) {
    joined_[vgpu->gpu] = vgpu->id;
    if (!observer_) services_.table.Joined(*vgpu);
  }
  return Welcome();
}

Complaint Session::On(const wire::Guard& guard) {
  if (greeted_) return "said Guard after another greeting";
  auto chosen = services_.table.Choose(wire::TextOf(guard.vgpus), services_.authority, caller_);
  if (!chosen) return replies_.Refuse(chosen.error());
  if (std::ranges::any_of(*chosen, [](const VGpu* vgpu) { return !vgpu->spec.space.empty(); }))
    return replies_.Refuse({ENOTSUP, "programs in a space cannot be behind the kernel gate", "leave out --enforce"});
  for (const VGpu* vgpu : *chosen) {
    if (auto takes = services_.table.Gpu(*vgpu).Health().TakesNewcomers(); !takes)
      return replies_.Refuse(takes.error());
  }
  greeted_ = guards_ = true;
  program_ = Printable(wire::TextOf(guard.program));
  for (VGpu* vgpu : *chosen) joined_[vgpu->gpu] = vgpu->id;
  return Welcome();
}

Complaint Session::Welcome() const {
  wire::Welcome welcome{.session = id_,
                        .grace_ns = services_.config.client_grace,
                        .block_on_loss = services_.config.block_on_daemon_loss};
  for (const VgpuId id : joined_) {
    const VGpu* vgpu = id != 0 ? services_.table.Find(id) : nullptr;
    const Space* space = vgpu ? services_.spaces.Find(vgpu->spec.space) : nullptr;
    if (!space) continue;
    wire::SetText(welcome.space, space->Who().name);
    wire::SetText(welcome.mps_pipes, space->Pipes());
    const sched::SpacePlace& place = vgpu->spec.compute.space;
    const wire::SmPlace sms = WirePlaceOf(place);
    welcome.sm_limit = sms.width;
    welcome.sm_reserved = place.reserved;
    welcome.sm_from = sms.from;
  }
  return replies_.Send(welcome);
}

// MPS knows one server for all GPUs of a program, and a server has one user.
Result<void> Session::CheckSpace(const std::vector<VGpu*>& chosen) const {
  for (const VGpu* vgpu : chosen) {
    const Space* space = services_.spaces.Find(vgpu->spec.space);
    if (!space) continue;
    if (chosen.size() > 1)
      return Fail(EINVAL, fmt::format("vGPU {} is in a space, whose programs use one GPU", vgpu->spec.name),
                  "name that vGPU alone");
    if (space->Who().uid != peer_.uid)
      return Fail(EPERM,
                  fmt::format("vGPU {} is in space {}, which takes programs of user {} only", vgpu->spec.name,
                              space->Who().name, space->Who().uid),
                  "make a vGPU of your own");
  }
  return {};
}

Complaint Session::OnListener() {
  if (!guards_) return "sent a listener without Guard";
  if (!received_[0] || !guard::IsListener(received_[0].Get())) return "sent no listener";
  if (std::exchange(listened_, true)) return "sent a second listener";
  std::vector<VgpuId> vgpus;
  std::ranges::copy_if(joined_, std::back_inserter(vgpus), [](VgpuId id) { return id != 0; });
  if (auto served = services_.kernel_gate.Supervise(
          std::move(received_[0]), std::move(vgpus),
          {.name = program_, .pid = peer_.pid, .uid = peer_.uid, .by_operator = caller_.IsOperator()});
      !served)
    return replies_.Refuse(served.error());
  return replies_.Send(wire::Welcome{.session = id_});
}

Complaint Session::On(const wire::Object& object, Nanos now) {
  using Kind = channel::ObjectEvent::Kind;
  if (object.kind != static_cast<std::uint32_t>(Kind::kAlloc) && object.kind != static_cast<std::uint32_t>(Kind::kFree))
    return "told of something that cannot be done to an object";
  told_ = true;
  services_.channels.Observe(peer_.pid,
                             {.kind = static_cast<Kind>(object.kind),
                              .fd = object.fd,
                              .client = object.client,
                              .parent = object.parent,
                              .object = object.object,
                              .cls = object.cls,
                              .detail = object.detail},
                             ChannelServer::Source::kShim, now);
  return nullptr;
}

Complaint Session::On(const wire::Unknown& unknown) {
  constexpr int kMost = 64;  // as the shim
  if (++unknown_ > kMost) return "told of too many functions";
  log::WarnOf(
      peer_.uid,
      "process {} ({}) asked the driver for {}, which this version of Tessera does not know: calls of it pass without "
      "gate and ledger",
      peer_.pid, program_, Printable(wire::TextOf(unknown.function)));
  return nullptr;
}

Complaint Session::On(const wire::Attach& attach, Nanos now) {
  if (observer_) return "is an observer and cannot attach";
  auto process = Attach(attach, now);
  if (!process) return replies_.Refuse(process.error());
  GpuServer& gpu = *services_.gpus[(*process)->vgpu->gpu];
  wire::Attached attached{
      .context_bytes = gpu.Memory().ContextBytes(), .memory_total = gpu.Info().memory_total, .swaps = gpu.Swaps()};
  wire::SetText(attached.vgpu, (*process)->vgpu->spec.name);
  const UniqueFd line = gpu.Swaps() ? gpu.Residency().MakeLine(**process, now) : UniqueFd();
  const int fds[] = {(*process)->page.Fd(), line.Get()};
  return replies_.Send(attached, gpu.Index(), std::span(fds, line ? 2 : 1));
}

Result<Process*> Session::Attach(const wire::Attach& attach, Nanos now) {
  // The daemon before this one may have been killed in a migration: the program and the state file name different GPUs.
  // It is saved, and is restored where its vGPU is.
  const bool away = attach.away != 0;
  VGpu* vgpu = away ? JoinedAs(wire::TextOf(attach.vgpu)) : JoinedOn(FindGpu(attach.gpu));
  if (!vgpu) {
    return Fail(ENODEV, fmt::format("no vGPU of this program is on {}", FormatUuid(attach.gpu)),
                "name a vGPU for each GPU, or hide the others with CUDA_VISIBLE_DEVICES");
  }
  if (!away && FindGpu(attach.gpu)->Index() != vgpu->gpu)
    return Fail(ENODEV, fmt::format("vGPU {} has moved to GPU {} since this program began", vgpu->spec.name, vgpu->gpu),
                "start the program again");
  auto& slot = processes_[vgpu->gpu];
  if (slot) return slot.get();
  // If the daemon before this one was killed in a migration its files may name it on another GPU.
  for (const auto& gpu : services_.gpus) {
    if (!JoinedOn(gpu.get())) gpu->Survivors().Attached(peer_.pid);
  }
  if (vgpu->removed) return Fail(ENODEV, fmt::format("vGPU {} was removed", vgpu->spec.name));
  auto claim = services_.bounds.Take(peer_.uid, UserBounds::Kind::kOther, UserBounds::kForAttachment);
  if (!claim) return std::unexpected(claim.error());
  // One that has used the GPU before, under the daemon before this one, is no newcomer.
  GpuServer& on = services_.table.Gpu(*vgpu);
  const bool was_there = attach.memory_bytes > 0 || attach.contexts > 0;
  if (auto takes = was_there ? on.Health().Check() : on.Health().TakesNewcomers(); !takes)
    return std::unexpected(takes.error());
  if (auto admitted = services_.quotas.AdmitProcess(caller_); !admitted) return std::unexpected(admitted.error());
  auto page = SharedPage::Create(vgpu->gpu);
  if (!page) return std::unexpected(page.error());
  attachments_.push_back(std::move(*claim));
  slot = std::make_unique<Process>(std::move(*page), peer_.pid);
  slot->who.uid = peer_.uid;
  slot->who.program = program_;
  slot->who.started_us = WallClockUs();
  std::ranges::copy_if(joined_, std::back_inserter(slot->who.joined), [](VgpuId id) { return id != 0; });
  slot->who.start = ProcessStart(peer_.pid).value_or(0);
  slot->residence.room = std::min(attach.room_bytes, services_.table.Gpu(*vgpu).Info().memory_total);
  slot->page.SayGpu(on.Info().uuid);  // the driver's answer in the program may be that of another GPU
  slot->page->guard.unsafe = attach.unsafe_bytes;
  slot->suspension.claimed = attach.away;
  services_.table.Gpu(*vgpu).Join(*vgpu, *slot, attach.memory_bytes, attach.contexts, now);
  services_.channels.Freezer().ThawLeftOver(
      vgpu->gpu,
      peer_.pid);  // a daemon before this one may have been killed while it was frozen
  if (attach.works != 0) services_.table.Gpu(*vgpu).Time().Wants(*slot, false, now);
  return slot.get();
}

Complaint Session::On(const wire::Query& query, Nanos now) {
  GpuServer* gpu = FindGpu(query.gpu);
  const VGpu* vgpu = JoinedOn(gpu);
  if (!vgpu || vgpu->removed) {
    return replies_.Refuse({ENODEV, fmt::format("no vGPU of this program is on {}", FormatUuid(query.gpu)), ""});
  }
  const auto memory = gpu->Memory().FiguresOf(vgpu->id);
  wire::View view{.memory_max = memory.max, .memory_used = memory.current};
  view.compute_pct = static_cast<std::uint32_t>(std::lround(gpu->Time().FiguresOf(*vgpu, now).percent));
  for (const Process* process : SeenBy(services_.authority, caller_, *vgpu)) {
    if (view.processes == std::size(view.process)) break;
    view.process[view.processes++] = {.pid = process->pid, .memory_bytes = process->memory.Current()};
  }
  return replies_.Send(view, gpu->Index());
}

GpuServer* Session::FindGpu(const wire::Uuid& uuid) const {
  const auto found = std::ranges::find_if(services_.gpus, [&](const auto& gpu) { return gpu->Info().uuid == uuid; });
  return found == services_.gpus.end() ? nullptr : found->get();
}

// The vGPU of this program that has that name; null: none.
VGpu* Session::JoinedAs(std::string_view name) const {
  for (const VgpuId id : joined_) {
    VGpu* vgpu = id != 0 ? services_.table.Find(id) : nullptr;
    if (vgpu && vgpu->spec.name == name) return vgpu;
  }
  return nullptr;
}

// The vGPU of this program on that GPU; null: none.
VGpu* Session::JoinedOn(const GpuServer* gpu) const {
  const VgpuId joined = gpu ? joined_[gpu->Index()] : 0;
  return joined ? services_.table.Find(joined) : nullptr;
}

}  // namespace tessera::server
