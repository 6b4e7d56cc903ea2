// The side of ResidencyServer that talks to the mover: starts it, makes lines to it, gives it orders, hears what it
// did.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "server/model/chunks.h"
#include "server/record/log.h"
#include "server/record/trace.h"
#include "server/swap/residency_server.h"
#include "server/swap/residency_trace.h"

namespace tessera::server {
namespace {

using Doing = Residence::Doing;

constexpr Nanos kStuck = kSecond;
// A pool that is full has place again after a batch that comes in at the same time.
constexpr Nanos kSlotSoon = 5 * kMillisecond;
// So long nobody waits for room that only host memory could make.
constexpr Nanos kPoolFull = 3 * kSecond;
constexpr Nanos kRestartMover = kSecond;
// A program that breaks its lines keeps the mover from no other's work.
constexpr Nanos kBetweenLines = kSecond / 2;

// Who may see what another one left in the host memory of the pool: processes that could read each other's memory
// anyway, because they are of one user in one PID namespace.
std::uint64_t DomainOf(const Process& process) {
  struct stat status{};
  const std::string path = fmt::format("/proc/{}/ns/pid", process.pid);
  if (stat(path.c_str(), &status) != 0) return (std::uint64_t{1} << 63) | static_cast<std::uint64_t>(process.pid);
  return (std::uint64_t{process.who.uid} << 32) ^ status.st_ino;
}

std::string WhyNotSettled(int error) {
  switch (error) {
    case ENOMEM:
      return "there is no host memory for what it has in the swap file";
    case EIO:
      return "what it has in the swap file, or in host memory, cannot be had";
    case ESTALE:
      return "what it had in the swap file is lost, with the daemon that had the file; it can only be ended";
    default:
      return fmt::format("its memory is not where it should be: {}", strerror(error));
  }
}

}  // namespace

// ---- lines ----

UniqueFd ResidencyServer::MakeLine(Process& process) {
  Residence& residence = process.residence;
  const Nanos now = MonotonicNow();
  if (now < residence.next_line) return {};
  residence.next_line = now + kBetweenLines;
  if (residence.number != 0 && mover_ready_)
    mover_->Send({.type = wire::MoverType::kGone, .program = residence.number});
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  residence.number = next_number_++;
  residence.line.Reset(ends[1]);
  Abandon(residence);
  FindLost(process);
  residence.out = residence.in = 0;
  residence.stuck_until = 0;
  residence.rests = false;
  process.page->guard.released = 0;  // it has no other line now
  if (mover_ready_) Introduce(process);
  return UniqueFd(ends[0]);
}

// Nobody carries out what was ordered. What was on its way stayed where it was; the room for it was not used. What was
// done without a word of it is found when the program, which has no moves under way then, asks for another line.
void ResidencyServer::Abandon(Residence& residence) {
  if (residence.doing == Doing::kLoading) {
    residence.room = Less(residence.room, residence.ordered);
    residence.lost_in += residence.ordered;
  } else if (residence.doing == Doing::kEvicting) {
    residence.lost_out += residence.ordered;
  }
  residence.doing = Doing::kNothing;
  residence.ordered = 0;
}

void ResidencyServer::FindLost(Process& process) {
  Residence& residence = process.residence;
  const std::uint64_t out =
      std::min(std::exchange(residence.lost_out, 0), Less(process.page->moved_out.load(), residence.moved_out));
  const std::uint64_t in =
      std::min(std::exchange(residence.lost_in, 0), Less(process.page->moved_in.load(), residence.moved_in));
  residence.moved_out += out;
  residence.moved_in += in;
  residence.room = Less(residence.room + in, out);
}

void ResidencyServer::Introduce(Process& process) {
  Residence& residence = process.residence;
  if (!residence.line) return;
  mover_->Send({.type = wire::MoverType::kProgram,
                .program = residence.number,
                .bytes = static_cast<std::uint64_t>(process.pid),
                .other = DomainOf(process)},
               residence.line.Get());
  residence.line.Reset();
}

// ---- orders ----

bool ResidencyServer::Order(Process& process, Doing doing, std::uint64_t bytes, Nanos now) {
  using enum wire::MoverType;
  Residence& residence = process.residence;
  if (!mover_ready_) return false;
  const wire::MoverType type = doing == Doing::kEvicting ? kEvict : doing == Doing::kLoading ? kLoad : kSettle;
  if (!mover_->Send({.type = type, .program = residence.number, .bytes = bytes})) return false;
  if (residence.doing == Doing::kNothing) residence.ordered_at = now;
  residence.doing = doing;
  residence.ordered += bytes;
  residence.rests = doing == Doing::kEvicting && file_ > 0;
  if (doing != Doing::kSettling) residence.rests_since = 0;
  Trace(process,
        doing == Doing::kEvicting  ? "orders-out"
        : doing == Doing::kLoading ? "orders-in"
                                   : "orders-settle",
        doing == Doing::kEvicting ? bytes : 0, doing == Doing::kLoading ? bytes : 0);
  return true;
}

Result<void> ResidencyServer::Push(Process& process, std::uint64_t bytes) {
  if (process.residence.number == 0)
    return Fail(ENOSYS, fmt::format("the memory of process {} cannot be moved", process.pid),
                "only memory of programs with Tessera's libcuda can");
  if (!mover_ready_ && !EnsureMover(MonotonicNow()) && !mover_)
    return Fail(EAGAIN, "there is no mover: " + why_no_mover_, "see the daemon's log");
  process.residence.push = bytes;
  process.residence.evict_error = 0;
  process.residence.stuck_until = 0;
  Work();
  return {};
}

// ---- the mover ----

bool ResidencyServer::EnsureMover(Nanos now) {
  if (mover_ || swap_max_ == 0) return mover_ready_;
  if (now < next_start_) return false;
  next_start_ = now + kRestartMover;
  auto started = host_.start_mover([this](const wire::MoverMessage* message) { OnMover(message); });
  if (!started) {
    ++failed_starts_;
    why_no_mover_ = started.error().Text();
    log::Error("GPU {}: memory cannot be moved: {}", gpu_, why_no_mover_);
    return false;
  }
  mover_ = std::move(*started);
  return false;
}

// As much as may have to go out: what is allocated beyond what fits, early.
void ResidencyServer::GrowPool() {
  if (!mover_ready_) return;
  std::uint64_t shared = 0;    // what those want who take turns
  std::uint64_t promised = 0;  // of the GPU, to others
  std::uint64_t beyond = 0;    // what those have to have elsewhere
  std::uint64_t pushed = 0;    // and what is out already, or about to go
  for (const VGpu* vgpu : vgpus_) {
    std::uint64_t demand = 0;
    for (const Process* each : vgpu->processes) {
      const Process& process = *each;
      demand += Has(process) + process.residence.wanted;
      pushed +=
          Swapped(process) + UpToChunks(Evicting(process)) + std::min(HotOut(process), sched::Exchange::kMostBytes);
    }
    const auto promise = host_.promise(*vgpu);
    promised += promise.value_or(0);
    beyond += promise ? UpToChunks(Less(demand, *promise)) : 0;
    shared += promise ? 0 : demand;
  }
  beyond += UpToChunks(Less(shared, Half(Less(host_.capacity(), promised))));
  const std::uint64_t wanted = std::min(swap_max_, std::max(beyond, pushed));
  if (wanted <= pool_wanted_) return;
  pool_wanted_ = wanted;
  mover_->Send({.type = wire::MoverType::kPool, .bytes = wanted, .other = swap_max_});
}

Process* ResidencyServer::Find(std::uint64_t number) const {
  Process* found = nullptr;
  ForEach([&](Process& process) {
    if (process.residence.number == number) found = &process;
  });
  return number == 0 ? nullptr : found;
}

void ResidencyServer::OnMover(const wire::MoverMessage* message) {
  using enum wire::MoverType;
  const Nanos now = MonotonicNow();
  if (!message || message->type == kFailed) {
    why_no_mover_ = message                 ? std::string(message->text, strnlen(message->text, sizeof message->text))
                    : why_no_mover_.empty() ? "the mover ended"
                                            : why_no_mover_;
    if (message) return;
    log::Error("GPU {}: {}; another one is started", gpu_, why_no_mover_);
    if (!std::exchange(mover_ready_, false)) ++failed_starts_;
    mover_gone_ = true;
    pool_ = pool_used_ = file_used_ = 0;
    ForEach([](Process& process) {
      Residence& residence = process.residence;
      if (residence.doing == Doing::kEvicting) residence.evict_error = ECHILD;
      Abandon(residence);
      if (!residence.line)
        residence.number = 0;  // until it has a new line; one that no mover has seen yet is for the next
      residence.rests = false;
    });
    timer_.Arm(now);  // to look at it all, which destroys the mover: not within its own callback
    return;
  }
  if (message->type == kReady) {
    mover_ready_ = true;
    failed_starts_ = 0;
    why_no_mover_.clear();
    // First what it is to hold: it has the slots of its predecessor, of which programs show theirs.
    mover_->Send({.type = wire::MoverType::kPool, .bytes = pool_wanted_, .other = swap_max_});
    ForEach([&](Process& process) { Introduce(process); });
    log::Info("GPU {}: memory can be moved", gpu_);
    return Work();
  }
  if (message->type == kPoolIs) {
    if (message->bytes > pool_) pool_grew_at_ = now;
    pool_ = message->bytes;
    pool_used_ = message->other;
    return;
  }
  if (message->type == kFileIs) {
    file_used_ = message->other;
    if (std::exchange(file_error_, message->error) != message->error && message->error != 0)
      log::Error("GPU {}: nothing more is written to the swap file: {}", gpu_, strerror(message->error));
    return;
  }
  Process* process = Find(message->program);
  if (!process) return;
  Residence& residence = process->residence;
  switch (message->type) {
    case kMoved: {
      last_moved_ = now;
      const std::uint64_t out = Less(message->bytes, residence.out), in = Less(message->other, residence.in);
      residence.out += out;
      residence.in += in;
      residence.moved_out += out;
      residence.moved_in += in;
      residence.room = Less(residence.room, out);  // what came in has its room since it was ordered
      residence.ordered = Less(residence.ordered, out + in);
      Trace(*process, "moved", out, in);
      break;
    }
    case kEvicted:
    case wire::MoverType::kLoaded:
    case kSettled:
      Done(*process, *message, now);
      break;
    default:
      return;
  }
  Work();
}

// What one order, with what was added to it, brought out or in; and where the vGPU's memory lies since then.
void ResidencyServer::TraceMove(Process& process, Nanos now) const {
  Residence& residence = process.residence;
  const bool out = residence.doing == Doing::kEvicting;
  std::uint64_t& traced = out ? residence.traced_out : residence.traced_in;
  const std::uint64_t moved = out ? residence.moved_out : residence.moved_in;
  trace::Note({.at = now,
               .took = now - residence.ordered_at,
               .value = moved - std::exchange(traced, moved),
               .vgpu = process.vgpu->id,
               .pid = process.pid,
               .gpu = gpu_,
               .kind = out ? TraceKind::kMovedOut : TraceKind::kMovedIn});
}

void ResidencyServer::Done(Process& process, const wire::MoverMessage& message, Nanos now) {
  Residence& residence = process.residence;
  const bool settling = message.type == wire::MoverType::kSettled;
  if (message.type == wire::MoverType::kLoaded) residence.room = Less(residence.room, message.bytes);
  if (settling) {
    if (message.error != 0 && message.error != residence.settle_error)
      log::Error("process {}: {}; it stays stopped", process.pid, WhyNotSettled(message.error));
    residence.settle_error = message.error;
    // It is asked again, but not at once; also where it says itself that it is not settled.
    if (message.error != 0 || process.page->guard.unsafe != 0) residence.stuck_until = now + kStuck;
  }
  // Where its line broke some of it may have been done.
  if (message.error == EPIPE)
    (message.type == wire::MoverType::kLoaded ? residence.lost_in : residence.lost_out) += message.bytes;
  residence.ordered = Less(residence.ordered, message.bytes);
  if (residence.ordered > 0) return;  // more was ordered meanwhile
  Trace(process, settling ? "settled" : message.type == wire::MoverType::kLoaded ? "loaded" : "evicted");
  if (!settling) (residence.doing == Doing::kEvicting ? moves_out_ : moves_in_).Note(now - residence.ordered_at);
  if (!settling) TraceMove(process, now);
  if (residence.doing == Doing::kEvicting && message.error != 0 && message.error != ENODATA)
    residence.evict_error = message.error;
  residence.doing = Doing::kNothing;
  residence.moving += now - residence.ordered_at;
  if (message.error != 0 && message.error != ENODATA) {
    const bool full = message.type == wire::MoverType::kEvicted && message.error == ENOMEM;
    bool comes_free = false;  // by what is brought in, any moment
    ForEach([&](const Process& each) { comes_free |= each.residence.doing == Doing::kLoading; });
    if (full && comes_free) {
      residence.stuck_until = now + kSlotSoon;
      return;
    }
    residence.stuck_until = now + kStuck;
    if (settling) return;
    if (full) pool_full_until_ = now + kPoolFull;
    log::Warn("process {}: {} of its memory could not be moved: {}", process.pid, FormatSize(message.bytes),
              std::string(strerror(message.error)));
  } else if (message.error == ENODATA && message.bytes > 0) {
    residence.stuck_until = now + kStuck;
  }
}

}  // namespace tessera::server
