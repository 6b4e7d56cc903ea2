#include "server/checkpoint/program_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/mover.h"

namespace tessera::server {
namespace {

// How long a program, or a mover, may take until the order can be given, and how slow a disk may be then, bytes/s.
constexpr Nanos kUntilOrdered = 30 * kSecond;
constexpr std::uint64_t kSlowest = 20u << 20;

ProcessName NameOf(const Process& process) { return {process.pid, process.who.start}; }

wire::MoverMessage Save(const GpuServer& gpu, const Process& process) {
  const GpuInfo& info = gpu.Info();
  wire::SuspendedGpu named;
  std::memcpy(named.uuid, &info.uuid, sizeof named.uuid);
  info.name.copy(named.name, sizeof named.name - 1);
  info.driver.copy(named.driver, sizeof named.driver - 1);
  wire::MoverMessage save = {.type = wire::MoverType::kSave, .bytes = process.who.start};
  std::memcpy(save.text, &named, sizeof named);
  return save;
}

std::string Why(int error) {
  switch (error) {
    case EBADMSG:
      return "it is not as it was written";
    case ENOMEM:
      return "there is no host memory for what is in it";
    case ECHILD:
    case EPIPE:
      return "the mover has ended meanwhile, or lost the program";
    default:
      return strerror(error);
  }
}

// The mover may use the file still, or all the same.
bool MayBeUsed(int error) { return error == ECHILD || error == EPIPE || error == EBUSY; }

}  // namespace

template <typename Visit>
void ProgramFile::ForEach(Visit visit) const {
  for (const auto& gpu : gpus_) {
    if (!gpu->Swaps()) continue;
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (Process* process : vgpu->processes) {
        if (process->pid == pid_ && !process->who.guest) visit(*gpu, *process);
      }
    }
  }
}

void ProgramFile::Begin(Doing doing, Nanos now) {
  doing_ = doing;
  began_at_ = now;
  ordered_.clear();
}

bool ProgramFile::Exists() const {
  bool any = false;
  ForEach([&](const GpuServer& gpu, const Process& process) {
    any |= process.residence.own_file.in || static_cast<bool>(files_.Open(NameOf(process), gpu.Info().uuid));
  });
  return any;
}

// False: there is no mover yet that could hear it.
Result<bool> ProgramFile::Order(GpuServer& gpu, Process& process) {
  OwnFile& own = process.residence.own_file;
  MoverLink& link = gpu.Residency().Link();
  const std::uint64_t line = process.residence.line.number;
  if (line == 0 || !link.Ready()) {
    link.Ensure(MonotonicNow());
    return false;
  }
  wire::MoverMessage order = {.type = wire::MoverType::kUnsave};
  UniqueFd file;
  if (doing_ == Doing::kWrites) {
    auto made = files_.Make(NameOf(process), gpu.Info().uuid);
    if (!made) return std::unexpected(made.error());
    file = std::move(*made);
    order = Save(gpu, process);
  }
  order.program = line;
  if (!link.Tell(order, file ? file.Get() : -1)) return false;
  own = {.ordered = true, .in = own.in, .error = 0};
  gpu.Residency().MarkDue();  // the pool needs more, or will need less
  return true;
}

Result<void> ProgramFile::EndOf(const GpuServer& gpu, const Process& process) {
  const int error = process.residence.own_file.error;
  const bool writes = doing_ == Doing::kWrites;
  if (error == 0 ? !writes : writes && !MayBeUsed(error)) files_.Remove(NameOf(process), gpu.Info().uuid);
  if (error == 0) return {};
  return Fail(
      error,
      fmt::format("what process {} has in host memory cannot be {} {}: {}", pid_, writes ? "written to" : "read from",
                  files_.PathOf(NameOf(process), gpu.Info().uuid), Why(error)),
      writes ? "it stays in host memory; suspend.dir may name another folder"
             : "resume it again when that is mended; else it can only be ended");
}

std::optional<Result<void>> ProgramFile::Ended(Nanos now) {
  bool ended = true;
  Result<void> result;
  ForEach([&](GpuServer& gpu, Process& process) {
    Nanos limit = kUntilOrdered;
    if (!ordered_.contains(gpu.Index())) {
      const auto ordered = Order(gpu, process);
      if (ordered && *ordered) ordered_.insert(gpu.Index());
      if (!ordered) {
        result = std::unexpected(ordered.error());
        return;
      }
    } else {
      limit += static_cast<Nanos>(process.residence.Swapped() / kSlowest) * kSecond;
    }
    // Another mover goes on where that one was.
    const int error = process.residence.own_file.error;
    if (!process.residence.own_file.ordered && (error == ECHILD || error == EPIPE)) ordered_.erase(gpu.Index());
    const bool waits = !ordered_.contains(gpu.Index()) || process.residence.own_file.ordered;
    if (waits && now - began_at_ > limit) {
      result = Fail(ETIMEDOUT, fmt::format("the mover of GPU {} does not do it", gpu.Index()),
                    "tessera gpus says what it does");
      return;
    }
    ended &= !waits;
  });
  if (!result) return result;
  if (!ended) return {};
  ForEach([&](const GpuServer& gpu, const Process& process) {
    auto end = EndOf(gpu, process);
    if (result && !end) result = std::move(end);
  });
  return result;
}

}  // namespace tessera::server
