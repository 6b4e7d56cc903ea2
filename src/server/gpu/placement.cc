#include "server/gpu/placement.h"

#include <algorithm>
#include <utility>

#include "server/gpu/gang_server.h"
#include "server/gpu/peers.h"
#include "server/swap/chunks.h"

namespace tessera::server {
namespace {

std::unexpected<Error> NotSwapped() {
  return Fail(ENOSYS, "memory is not swapped here", "set swap.size in the daemon's configuration");
}

}  // namespace

std::uint64_t SwapSetup::RunnableOut() const { return file.bytes == 0 ? bytes : Less(bytes, wire::kChunkBytes); }

SwapSize SwapSetup::Size() const {
  return {
      .pool = bytes, .file = file.bytes, .prepare = prepare, .kept = slots ? slots->count() * wire::kChunkBytes : 0};
}

std::uint64_t Placement::Outside(const Process& process) {
  if (process.suspension.Absent()) return 0;
  const MemoryUse& use = process.memory;
  return use.context_bytes + use.other + (process.who.guest ? use.reserved : 0);
}

Placement::Placement(EventLoop& loop, const Config& config, SwapSetup swap, Host host)
    : loop_(loop), swap_(std::move(swap)), host_(std::move(host)), left_(host_.gpu, host_.vgpus) {
  if (swap_.slots) MakeHolderLink();
  if (swap_.bytes > 0)
    residency_ = std::make_unique<ResidencyServer>(loop, host_.gpu, config.residency, swap_.Size(), host_.vgpus,
                                                   ResidencyHost());
}

ResidencyServer::Host Placement::ResidencyHost() {
  return {
      .survivors = &host_.survivors,
      .capacity = [this] { return Less(RoomCapacity(), Held()); },
      .outside = Outside,
      .hold = [this](Process& process, MemoryHold hold,
                     Nanos now) { host_.freezes.SetByResidency(process, hold, now); },
      .still = [this](const Process& process) { return Still(process) && (!peers_ || peers_->StandStill(process)); },
      .peers = [this](const Process& process) { return peers_ ? peers_->WorkOf(process) : PeerWork(); },
      .looked =
          [this] {
            if (gangs_) gangs_->MarkDue();
            host_.looked();
          },
      .file_of =
          [this](const Process& process) {
            return suspended_files_ ? suspended_files_->Take({process.pid, process.who.start}, host_.info.uuid)
                                    : UniqueFd();
          },
      .has_left = [this](const Process& process) { return left_.Has(process.pid); },
      .start_mover =
          [this](std::function<void(const wire::MoverMessage*)> on_message) {
            return MakeMover(std::move(on_message));
          },
  };
}

Result<std::unique_ptr<Mover>> Placement::MakeMover(std::function<void(const wire::MoverMessage*)> on_message) {
  if (!swap_.slots) {  // with places for slots of GPU memory, too
    auto made = SwapSlots::Make(swap_.bytes + host_.info.memory_total);
    if (!made) return std::unexpected(made.error());
    swap_.slots = std::make_unique<SwapSlots>(std::move(*made));
    if (left_memory_) swap_.slots->Heed(*left_memory_);
  }
  if (!holder_) MakeHolderLink();
  holder_->Ensure();
  return StartMover(loop_,
                    {.gpu_uuid = FormatUuid(host_.info.uuid),
                     .soft = swap_.soft,
                     .floor = swap_.floor,
                     .slots = swap_.slots.get(),
                     .holder = holder_.get(),
                     .file = swap_.file.file.Get(),
                     .table = swap_.file.table.Get(),
                     .another = std::exchange(mover_started_, true)},
                    std::move(on_message));
}

void Placement::MakeHolderLink() {
  holder_ = std::make_unique<SwapHolderLink>(loop_, host_.gpu, swap_.holder_path, *swap_.slots, swap_.file,
                                             std::move(swap_.holder));
}

bool Placement::Still(const Process& process) const {
  if (const pid_t server = host_.channels.Table().ServerOfClient(process.pid)) {
    const auto space = host_.channels.Freezer().StatusOf(server, host_.gpu);
    if (Has(space.reasons, FreezeReason::kMove) && space.still_since != 0) return true;
  }
  const bool at_gate = !process.gate.stop.Freezes();
  // It has done nothing yet. A program that came back without parking may work, though nobody has said so.
  if (FreezesChannels(host_.time.Ways().Present()) && at_gate && !process.work.worked &&
      process.gate.state == GateRecord::State::kParked)
    return true;
  if (FreezesChannels(host_.time.Ways().Present()) && !at_gate) {
    host_.channels.Freezer().Beat();  // if this daemon hung, frozen processes ran
    return host_.channels.Freezer().StatusOf(process.pid, host_.gpu).still_since != 0 ||
           !host_.channels.Knows(process.pid, host_.gpu);
  }
  // A drained gate is not as safe as a freeze: while channels are being tested, a freeze may soon be possible.
  if (host_.channels.Availability().Testing()) return false;
  const bool parked =
      process.gate.state == GateRecord::State::kParked || process.gate.state == GateRecord::State::kWanting;
  return parked && process.page->rests.load(std::memory_order_acquire) != 0;
}

std::uint64_t Placement::RoomCapacity() const {
  // The mover's context counts also while there is no mover: one that finds no place for it cannot start.
  const std::uint64_t taken = host_.memory.Ledger().Reserve() + host_.unmanaged() + host_.memory.ContextBytes();
  return Less(host_.info.memory_total, taken);
}

void Placement::Heed(SuspendedFiles& files, LeftMemory& left) {
  suspended_files_ = &files;
  left_.Heed(left);
  left_memory_ = &left;
  if (swap_.slots) swap_.slots->Heed(left);
}

std::uint64_t Placement::Held() const {
  std::uint64_t held = left_.Bytes(/*also_taken_again=*/false);
  for (const auto& [pid, bytes] : held_) held += bytes;
  return held;
}

std::uint64_t Placement::FreeRoom() const {
  std::uint64_t taken = Held();
  for (const VGpu* vgpu : host_.vgpus) {
    for (const Process* process : vgpu->processes) taken += process->residence.room + Outside(*process);
  }
  return Less(RoomCapacity(), taken);
}

void Placement::Hold(pid_t pid, std::uint64_t bytes) {
  bytes > 0 ? (void)(held_[pid] = bytes) : (void)held_.erase(pid);
  if (residency_) residency_->MarkDue();
}

std::uint64_t Placement::ResidentBytes(const Process& process) const {
  if (!residency_) return process.suspension.Absent() ? 0 : process.memory.Current();
  return process.residence.Taken() + Outside(process);
}

PinnedTotals Placement::PinnedTotalsOf(const Process& process) const {
  const MemoryUse& use = process.memory;
  if (process.suspension.Absent()) return {};
  const std::uint64_t counted = residency_ ? process.residence.Pinned() : use.reserved - use.Credit();
  if (!process.who.guest) return {.counted = counted, .context = use.context_bytes, .driver = use.other};
  return {.context = use.context_bytes, .no_shim = use.other + (residency_ ? use.reserved + counted : counted)};
}

Result<void> Placement::Evict(Process& process, std::uint64_t keep, Nanos now) {
  if (!residency_) return NotSwapped();
  return residency_->Push(process, std::min(process.residence.Movable(), Less(ResidentBytes(process), keep)), now);
}

Result<void> Placement::Evict(VGpu& vgpu, std::uint64_t keep, Nanos now) {
  if (!residency_) return NotSwapped();
  for (Process* process : vgpu.processes) {
    const std::uint64_t stays = std::min(keep, ResidentBytes(*process));
    keep -= stays;
    // A process without movable memory does not stop the eviction of the others.
    if (vgpu.processes.size() > 1 && process->residence.Movable() == 0) continue;
    if (auto pushed = Evict(*process, stays, now); !pushed) return pushed;
  }
  return {};
}

}  // namespace tessera::server
