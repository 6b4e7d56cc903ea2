#include "server/swap/residency_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/size.h"
#include "sched/residency/pool_policy.h"
#include "sched/residency/room_admission.h"
#include "sched/residency/squeeze.h"
#include "server/record/events.h"
#include "server/record/log.h"
#include "server/record/trace.h"
#include "server/swap/chunks.h"
#include "server/swap/residency_snapshot.h"
#include "server/swap/residency_trace.h"

namespace tessera::server {
namespace {

using sched::Moving;

// Plans that are made at most within one look: what one says is seen by the next. A stop, a move and a grant may follow
// each other; more than these few means that a program changes what it says as quickly as it is read.
constexpr int kMostPlans = 8;
constexpr Nanos kNextLookThen = kMillisecond;
// The pause after a failure before the mover is asked again.
constexpr Nanos kStuck = kSecond;
// The pause after the pool was full: a batch that comes in at the same time makes place.
constexpr Nanos kSlotSoon = 5 * kMillisecond;
// How long slots of the GPU's memory may take to come free, since something was moved last.
constexpr Nanos kMostFreeing = 2 * kSecond;
// How long requests that need host memory are refused after there was none.
constexpr Nanos kPoolFull = 3 * kSecond;

std::string WhyNotSettled(int error) {
  switch (error) {
    case ENOMEM:
      return "there is no host memory for what it has in the swap file";
    case EIO:
      return "what it has in the swap file, or in host memory, cannot be read";
    case ESTALE:
      return "what it had in the swap file is lost, with the daemon that had the file; it can only be ended";
    default:
      return fmt::format("its memory is not where it should be: {}", strerror(error));
  }
}

sched::PoolResidence PoolOf(const SwapSize& swap) {
  const std::uint64_t most = DownToChunks(swap.pool);
  return {.prepared = std::min(swap.kept, most), .most = most, .prepare = swap.prepare};
}

void NoteNoHostMemory(Process& process) {
  if (std::exchange(process.residence.no_host_memory, true)) return;
  log::Info("process {}: its driver cannot reach host memory on this GPU; it runs when all its memory is on the GPU",
            process.pid);
}

}  // namespace

ResidencyServer::ResidencyServer(EventLoop& loop, std::uint32_t gpu, const sched::ResidencyConfig& config,
                                 const SwapSize& swap, const std::vector<VGpu*>& vgpus, Host host)
    : gpu_(gpu),
      file_(swap.file),
      vgpus_(vgpus),
      host_(std::move(host)),
      link_(gpu, PoolOf(swap),
            {.start = host_.start_mover,
             .file_of = host_.file_of,
             .ready =
                 [this] {
                   ForEach([this](Process& process) { link_.Introduce(process); });
                   MarkDue();
                 },
             .gone = [this] { OnMoverGone(); },
             .report = [this](const wire::MoverMessage& message) { OnReport(message, MonotonicNow()); },
             .machine = [this] { MarkDue(); }}),
      actions_(host_, link_, swap.file > 0),
      host_watch_(gpu, config.on_host),
      planner_(config),
      timer_(loop, [this] { Look(MonotonicNow()); }),
      look_(loop, [this] { Look(MonotonicNow()); }) {
  MarkDue();  // something may be prepared before any program comes
}

// ---- processes ----

void ResidencyServer::Join(Process& process, std::uint64_t had, Nanos now) {
  process.residence.moves.Bring(had > 0 ? host_.capacity() + SwapMax() + file_ : 0);
  if (process.page->guard.unsafe != 0) Look(now);
  MarkDue();
}

void ResidencyServer::Leave(Process& process, Nanos now) {
  link_.Dismiss(process);
  process.vgpu->moved_before += process.residence.moves.SumAt(now);
  process.residence = Residence(process.page);
  MarkDue();
}

sched::RoomAnswer::Kind ResidencyServer::Ask(Process& process, std::uint64_t bytes, bool pins, Nanos now) {
  using enum sched::RoomAnswer::Kind;
  Residence& residence = process.residence;
  Snapshot(now, state_);
  const sched::RoomAnswer answer = planner_.Ask(state_, {residence.id, bytes, pins}, now);
  switch (answer.kind) {
    case kRefuse:
      residence.wanted = 0;
      ReportRefusal(process, bytes, answer, now);
      break;
    case kGrant:
      residence.wanted = 0;
      ResidencyActions::AddRoom(process, bytes);
      // Credit is for chunks: beside what is pinned it would pass for memory that the device may show.
      if (!pins) ResidencyActions::AddCredit(process, answer.credit);
      if (!link_.Exists()) MarkDue();  // one may be needed soon
      break;
    case kWait:
      if (bytes > 0) {
        residence.wanted = bytes;
        residence.wanted_at = now;
        residence.pins = pins;
      }
      Look(now);
      break;
  }
  return answer.kind;
}

sched::RoomAnswer::Kind ResidencyServer::AskForContext(Process& process, std::uint64_t bytes, Nanos now) {
  using enum sched::RoomAnswer::Kind;
  Residence& residence = process.residence;
  // What it waited for is in its credit.
  std::atomic<std::int64_t>& page_credit = process.page->room_credit;
  const auto wanted = static_cast<std::int64_t>(bytes);
  for (std::int64_t credit = page_credit.load(); credit >= wanted && bytes <= residence.room;) {
    if (!page_credit.compare_exchange_weak(credit, credit - wanted)) continue;
    residence.room -= bytes;
    return kGrant;
  }
  const sched::RoomAnswer::Kind answer = Ask(process, bytes, /*pins=*/true, now);
  if (answer == kGrant) residence.room -= bytes;
  return answer;
}

// A program that tries again and again is reported once a second.
void ResidencyServer::ReportRefusal(Process& process, std::uint64_t bytes, const sched::RoomAnswer& answer,
                                    Nanos now) const {
  Nanos& reported_at = process.work.refusal_reported_at;
  if (reported_at != 0 && now - reported_at < kSecond) return;
  reported_at = now;
  events::Note(
      {.type = EventType::kMemoryRefused,
       .gpu = gpu_,
       .vgpu = process.vgpu->spec.name,
       .pid = process.pid,
       .owner = process.vgpu->spec.uid,
       .user = process.who.uid,
       .text = fmt::format("{} asked for {} on the GPU; {}", process.who.program, FormatSize(bytes), Text(answer))});
}

Result<void> ResidencyServer::Push(Process& process, std::uint64_t bytes, Nanos now) {
  Residence& residence = process.residence;
  if (residence.line.Lost())  // its mover has just died
    return Fail(EAGAIN, fmt::format("process {} waits for another mover", process.pid), "try again in a second");
  if (residence.line.number == 0)
    return Fail(ENOSYS, fmt::format("the memory of process {} cannot be moved", process.pid),
                "only memory of programs with Tessera's libcuda can");
  link_.Ensure(now);
  if (!link_.Exists())
    return Fail(EAGAIN, "there is no mover: " + link_.WhyNone(/*needed=*/true), "see the daemon's log");
  residence.push = bytes;
  residence.evict_error = 0;
  residence.stuck_until = 0;
  Look(now);
  return {};
}

bool ResidencyServer::ProgramsTravel() const {
  bool any = false;
  ForEach([&](const Process& process) {
    const SuspensionPhase phase = process.suspension.phase;
    const Residence& residence = process.residence;
    const bool at_once = residence.comes_at_once && residence.Swapped() > residence.Stranded();
    const bool follows = residence.comes_back && (at_once || residence.moves.Doing() == Moving::kIn);
    any |= follows || (process.suspension.Begun() && phase != SuspensionPhase::kSuspended);
  });
  return any;
}

// ---- looks ----

void ResidencyServer::Snapshot(Nanos now, sched::ResidencyState& state) const {
  TakeSnapshot(vgpus_, host_, link_, file_, now, state);
  state.pool.full_until = pool_full_until_;
  state.last_moved = last_moved_;
  state.missing = host_.survivors->Missing();
  state.missing_since = host_.survivors->Since();
}

void ResidencyServer::Look(Nanos now) {
  link_.Reap();
  Nanos next = now;
  bool needs_mover = false;
  for (int plans = 0; plans < kMostPlans && next <= now; ++plans) {
    Snapshot(now, state_);
    const sched::ResidencyPlan& plan = planner_.Plan(state_, now);
    if (plan.pressed && !was_pressed_) log::Debug("GPU {}: memory is moved from now on", gpu_);
    was_pressed_ = plan.pressed;
    if (std::exchange(awaited_, plan.awaits) != plan.awaits)
      log::Debug("GPU {}: {}", gpu_, plan.awaits ? planner_.Why(state_) : "it waits for nobody any more");
    needs_mover = plan.needs_mover;
    if (needs_mover) link_.Ensure(now);
    CarryOut(plan, now);
    next = plan.actions.empty() ? plan.look_at : now;
  }
  NoteWaits(vgpus_, state_, now);
  ReportShortage();
  TellSqueezes(now);
  if (next <= now) next = now + kNextLookThen;
  next = std::min(next, host_watch_.Look(vgpus_, state_, now));
  timer_.Arm(std::min(next, link_.NextLook(needs_mover, now)));
  host_.looked();
}

void ResidencyServer::CarryOut(const sched::ResidencyPlan& plan, Nanos now) {
  for (const sched::VGpuGoal& goal : plan.changed) {
    const auto vgpu = std::ranges::find(vgpus_, goal.vgpu, &VGpu::id);
    if (vgpu != vgpus_.end()) Trace(**vgpu, goal.target, goal.runs, now);
  }
  for (const sched::ResidencyAction& action : plan.actions) {
    if (action.process == 0) link_.OrderPool(action);
    ForEach([&](Process& process) {
      if (process.residence.id == action.process) actions_.Do(action, process, now);
    });
  }
}

void ResidencyServer::ReportShortage() {
  const sched::PoolGoal& pool = planner_.Pool();
  shortage_reported_ &= pool.prepares;
  if (!pool.is_short || std::exchange(shortage_reported_, true)) return;
  log::Info(
      "GPU {}: {} of host memory are prepared for swapping, of {} that programs could need: the machine has no "
      "more to spare (swap.floor)",
      gpu_, FormatSize(pool.prepared), FormatSize(sched::PoolWorthwhile(state_)));
}

// What programs are told to be free follows from it.
void ResidencyServer::TellSqueezes(Nanos now) {
  for (std::size_t i = 0; i < vgpus_.size(); ++i) {
    const std::uint32_t squeezes = sched::MaySqueeze(state_, state_.vgpus[i], now) ? 1 : 0;
    for (Process* process : vgpus_[i]->processes) process->page->squeezes.store(squeezes, std::memory_order_relaxed);
  }
}

// ---- what the mover says ----

void ResidencyServer::OnMoverGone() {
  ForEach([](Process& process) {
    Residence& residence = process.residence;
    if (residence.moves.Doing() == Moving::kOut) residence.evict_error = ECHILD;
    residence.Abandon();
    // It has none until it gets a new one. A line that no mover has seen yet is for the next mover.
    if (!residence.line.end) residence.line.number = 0;
  });
  MarkDue();
}

void ResidencyServer::OnReport(const wire::MoverMessage& message, Nanos now) {
  Process* process = nullptr;
  ForEach([&](Process& each) {
    if (each.residence.line.number == message.program && message.program != 0) process = &each;
  });
  if (!process) return;
  if (message.type == wire::MoverType::kMoved) {
    last_moved_ = now;
    const Moves moved = process->residence.NoteMoved({.out = message.bytes, .in = message.other},
                                                     {.out = message.copied_out, .in = message.copied_in});
    Trace(*process, "moved", moved.out, moved.in);
  } else if (message.type == wire::MoverType::kSaved || message.type == wire::MoverType::kUnsaved) {
    process->residence.own_file.End(message.type == wire::MoverType::kSaved, message.error);
  } else if (message.type == wire::MoverType::kSaveLeft) {
    process->residence.own_file.left = message.bytes;
    return;
  } else if (message.type == wire::MoverType::kNoHostMemory) {
    NoteNoHostMemory(*process);
  } else {
    OnEnd(*process, message, now);
  }
  Look(now);
}

// An order has ended, without `message.bytes` of it.
void ResidencyServer::OnEnd(Process& process, const wire::MoverMessage& message, Nanos now) {
  Residence& residence = process.residence;
  const bool settled = message.type == wire::MoverType::kSettled;
  const bool in = message.type == wire::MoverType::kLoaded;
  if (in) residence.room = Less(residence.room, message.bytes);
  if (settled) OnSettled(process, message.error, now);
  if (message.type == wire::MoverType::kParked) {
    residence.parked = message.error == 0;
    residence.park_error = message.error;
  }
  // Where its line broke some of it may have been done.
  if (message.error == EPIPE) residence.moves.LoseSight(message.bytes);
  const Nanos took = now - residence.moves.OrderedAt();
  if (!residence.moves.NoteEnd(message.bytes, now)) return;
  if (in && residence.Swapped() == 0) residence.comes_at_once = false;
  if (in && !residence.comes_at_once) residence.comes_back = false;
  const bool out = message.type == wire::MoverType::kEvicted;
  Trace(process, settled ? "settled" : in ? "loaded" : out ? "evicted" : "parked");
  if (in || out) {
    (in ? moves_in_ : moves_out_).Note(took);
    trace::Note({.at = now,
                 .took = took,
                 .value = residence.moves.TakeUntraced(in ? Moving::kIn : Moving::kOut),
                 .vgpu = process.vgpu->id,
                 .pid = process.pid,
                 .gpu = gpu_,
                 .kind = in ? TraceKind::kMovedIn : TraceKind::kMovedOut});
  }
  if (message.error == ENODATA) {
    // The rest of an order may be too little for any chunk, or for holes that are no longer there.
    if (message.bytes >= wire::kChunkBytes && (!in || residence.Swapped() > residence.Stranded()))
      residence.stuck_until = now + kStuck;
  } else if (message.error != 0 && !(settled && message.error == EOPNOTSUPP)) {
    OnFailure(process, message, now);
  }
}

void ResidencyServer::OnSettled(Process& process, int error, Nanos now) {
  Residence& residence = process.residence;
  const bool left = residence.comes_at_once || host_.has_left(process);  // that cannot be held, and host memory can
  if (error == EOPNOTSUPP && !left) return NoteNoHostMemory(process);
  residence.comes_at_once |= error == EOPNOTSUPP;  // others may wait for its addresses
  if (error != 0 && error != EOPNOTSUPP && error != residence.settle_error)
    log::Error("process {}: {}; it stays stopped", process.pid, WhyNotSettled(error));
  residence.settle_error = error;
  // It is asked again, but not at once; also where the program itself says that it is not settled.
  if (error != 0 || process.page->guard.unsafe != 0) residence.stuck_until = now + kStuck;
}

void ResidencyServer::OnFailure(Process& process, const wire::MoverMessage& message, Nanos now) {
  Residence& residence = process.residence;
  const bool out = message.type == wire::MoverType::kEvicted, none = message.error == ENOMEM, full = out && none;
  if (out) residence.evict_error = message.error;
  bool comes_free = false;  // by what is brought in, any moment
  ForEach([&](const Process& each) { comes_free |= each.residence.moves.Doing() == Moving::kIn; });
  // So do slots of the GPU's memory, whose content is in.
  const bool frees = !out && none && residence.comes_at_once && now - last_moved_ < kMostFreeing;
  if (frees || (full && comes_free)) {
    residence.stuck_until = now + kSlotSoon;
    return;
  }
  residence.stuck_until = now + kStuck;
  if (message.type == wire::MoverType::kSettled || message.type == wire::MoverType::kParked) return;
  if (full) pool_full_until_ = now + kPoolFull;
  if (none && !out) link_.Order(process, wire::MoverType::kRelocate);  // what lies in place takes its room twice
  log::Warn("process {}: {} of its memory could not be moved: {}", process.pid, FormatSize(message.bytes),
            std::string(strerror(message.error)));
}

// ---- figures ----

// While nothing is pressed it does not matter what one mover died of.
ResidencyServer::Figures ResidencyServer::FiguresAt(Nanos now) const {
  sched::ResidencyState state;
  Snapshot(now, state);
  const std::string why_no_mover = link_.WhyNone(was_pressed_);
  return {.swap_max = link_.Pool().most,
          .pool = link_.Pool().size,
          .pool_used = link_.Pool().used,
          .pool_goal = link_.Pool().Goal(),
          .file = file_,
          .file_used = link_.FileUse().used,
          .file_error = link_.FileUse().error,
          .capacity = state.capacity,
          .mover = link_.Pid(),
          .decision = why_no_mover.empty() ? planner_.Why(state) : why_no_mover,
          .turns = planner_.TakesTurns(),
          .turn = planner_.TurnLength(),
          .moves_out = moves_out_,
          .moves_in = moves_in_};
}

}  // namespace tessera::server
