#include "server/checkpoint/suspension.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fault.h"
#include "server/checkpoint/obstacles.h"
#include "server/record/log.h"
#include "server/swap/residency_actions.h"

namespace tessera::server {

using enum SuspensionPhase;
namespace {

// How often the driver is asked what a program is, if it does not say.
constexpr int kMostTries = 5;
constexpr Nanos kBetweenTries = kSecond;
// How long the program works on while what makes the driver's calls starts: a second or two (Checkpointer::Prepare).
constexpr Nanos kMostPreparing = 3 * kSecond;

double SecondsSince(Nanos then, Nanos now) { return static_cast<double>(now - then) / kSecond; }

Error NotDrained(pid_t pid, Nanos within) {
  return {ETIMEDOUT, fmt::format("what process {} has queued did not end within {} s", pid, within / kSecond),
          "try again when it has less to do"};
}

// `error`: errno value of why, 0 if nobody says.
Error MemoryStays(pid_t pid, int error) {
  return {error != 0 ? error : ETIMEDOUT,
          fmt::format("the memory of process {} does not leave the GPU{}", pid,
                      error != 0 ? fmt::format(": {}", strerror(error)) : ""),
          "tessera gpus says what the mover does"};
}

void EnterWith(std::uint32_t gpu, Process& process, SuspensionPhase phase, Nanos now) {
  if (process.suspension.phase == phase) return;
  NotePhase(gpu, process, phase, now);
  process.suspension.phase = phase;
  process.suspension.since = now;
}

}  // namespace

Suspension::Suspension(pid_t pid, const std::vector<std::unique_ptr<GpuServer>>& gpus, SuspendedFiles& files,
                       MovingFigures& figures, std::unique_ptr<Checkpointer> checkpointer, const Bounds& bounds)
    : pid_(pid),
      parts_(pid, gpus),
      figures_(figures),
      checkpointer_(std::move(checkpointer)),
      bounds_(bounds),
      file_(pid, gpus, files) {}

Suspension::~Suspension() { *alive_ = false; }

// An answer may come after the end of this object.
template <typename Done>
std::function<void(Result<void>)> Suspension::WhenDone(Done done) {
  return [alive = alive_, done = std::move(done)](Result<void> result) {
    if (*alive) done(std::move(result), MonotonicNow());
  };
}

void Suspension::Enter(SuspensionPhase phase, Nanos now) {
  if (phase_ != phase) figures_.Note(phase_, now - std::exchange(entered_, now));
  phase_ = phase;
  since_ = now;
  left_to_move_ = UINT64_MAX;
  tries_ = 0;
  ask_at_ = kNever;
  asked_why_ = {};
  if (phase < kSaves) parts_.SayAway({});  // before a gate opens
  parts_.ForEach([&](GpuServer& gpu, Process& process) {
    const bool held = process.suspension.Holds();
    EnterWith(gpu.Index(), process, phase, now);
    if (phase == kNone) process.suspension.taken = process.suspension.by_itself = false;
    if (process.suspension.Holds() != held) gpu.Freezes().SuspensionChanged(process, now);
    if (gpu.Swaps()) gpu.Residency().MarkDue();
  });
}

// ---- away ----

Result<void> Suspension::Begin(Nanos now) {
  std::vector<const Process*> processes;
  parts_.ForEach([&](GpuServer&, Process& process) { processes.push_back(&process); });
  if (auto may = MayLeave(pid_, processes); !may) return may;
  parts_.SetError("");
  parts_.ForEach([this](GpuServer&, Process& process) {
    process.suspension.bytes = 0;
    process.suspension.in_place = in_place_;
  });
  checkpointer_->Prepare();
  began_at_ = now;
  Enter(kPrepares, now);
  Step(now);
  return {};
}

void Suspension::TakeOver(bool returns, Nanos now) {
  phase_ = kSaves;
  entered_ = since_ = began_at_ = ask_at_ = now;
  quiet_ = taken_over_ = true;
  returns_ = returns;
  asked_why_ = {EINTR, "the daemon ended meanwhile", "try again"};
}

void Suspension::Joining(Process& process, Nanos now) const {
  EnterWith(process.vgpu->gpu, process, phase_ >= kSuspended && phase_ <= kReturns ? kSaves : phase_, now);
  if (process.suspension.phase >= kSaves)
    process.page.SayAway(wire::AwayWord(process.suspension.saved_on, returns_ || for_migration_,
                                        process.suspension.by_itself || ByItself()));
}

void Suspension::Step(Nanos now) {
  over_ = over_ || !parts_.Any();  // it has ended
  if (over_) return;
  switch (phase_) {
    case kPrepares:
      if (!checkpointer_->Prepared() && now - since_ < kMostPreparing) return;
      Enter(kDrains, now);
      return AwaitDrain(now);
    case kDrains:
      return AwaitDrain(now);
    case kLeaves:
      return AwaitLeave(now);
    case kSaves:
      if (relocation_.Waits()) return Saved(now);
      if (!quiet_) return AwaitQuiet(now);
      if (std::exchange(taken_over_, false)) {  // its last call may still be under way, and was Lock if it is unlocked
        ask_at_ = kNever;
        checkpointer_->Lock(pid_, bounds_.lock,
                            WhenDone([this](const Result<void>&, Nanos) { FindOut(Error(asked_why_)); }));
      } else if (now >= ask_at_) {
        FindOut(Error(asked_why_));
      }
      return;
    case kSuspended:
      // Of a program on several GPUs that an earlier daemon suspended, the rest may come later.
      if (parts_.GiveUpRoomOfLate(phase_)) Enter(phase_, now);
      return Rest(now);
    case kFiles:
    case kReads:
      return AwaitFile(now);
    case kReturns:
      return AwaitRoom(now);
    case kRestores:
      if (now >= ask_at_) FindOut(Error(asked_why_));
      return;
    case kNone:
      return;
  }
}

void Suspension::AwaitDrain(Nanos now) {
  if (parts_.Still()) {
    PassFault("suspension.drained");
    Enter(kLeaves, now);
    return AwaitLeave(now);
  }
  if (now - since_ > bounds_.drain) Undo(NotDrained(pid_, bounds_.drain), now);
}

void Suspension::AwaitLeave(Nanos now) {
  std::uint64_t to_move = 0;
  int error = 0;
  parts_.ForEach([&](const GpuServer& gpu, const Process& process) {
    if (!gpu.Swaps()) return;
    to_move += process.residence.Movable();
    if (process.residence.park_error != 0) error = process.residence.park_error;
  });
  if (parts_.HaveLeft()) return Save(now);
  if (std::exchange(left_to_move_, to_move) != to_move) since_ = now;
  if (now - since_ > bounds_.still) Undo(MemoryStays(pid_, error), now);
}

// The room that it has not used yet must not tempt its threads into the driver, where they would wait with locks that
// others need.
void Suspension::Save(Nanos now) {
  PassFault("suspension.left");
  parts_.ForEach([](GpuServer& gpu, Process& process) {
    process.suspension.saved_on = gpu.Index();
    if (gpu.Swaps()) ResidencyActions::RevokeCredit(process);
  });
  quiet_ = false;
  Enter(kSaves, now);
  parts_.SayAway(returns_ || for_migration_);
  AwaitQuiet(now);
}

void Suspension::AwaitQuiet(Nanos now) {
  const bool quiet = parts_.Quiet();
  if (quiet && parts_.HoldHostMemory())
    return Undo({EAGAIN, fmt::format("process {} has host memory again, and the driver could not restore it", pid_),
                 "try again"},
                now);
  if (quiet) return Lock();
  if (now - since_ > bounds_.lock)
    Undo({ETIMEDOUT, fmt::format("threads of Tessera's in process {} stay in calls of the driver, or do not run", pid_),
          "see whether the GPU works"},
         now);
}

void Suspension::Lock() {
  quiet_ = true;
  checkpointer_->Lock(pid_, bounds_.lock, WhenDone([this](const Result<void>& locked, Nanos) {
                        if (!locked) return CallFailed(locked.error(), wire::CheckpointOperation::kLock);
                        PassFault("suspension.locked");
                        checkpointer_->Checkpoint(pid_, WhenDone([this](const Result<void>& saved, Nanos now) {
                                                    if (saved) return Saved(now);
                                                    CallFailed(saved.error(), wire::CheckpointOperation::kCheckpoint);
                                                  }));
                      }));
}

// Where the answer is lost, the call may still be under way in the driver, and the program's state changes later. The
// same call comes after it, and fails if it is done.
void Suspension::CallFailed(const Error& why, wire::CheckpointOperation call) {
  if (why.code != EPIPE) return FindOut(why);
  const auto then = WhenDone([this, why](const Result<void>&, Nanos) { FindOut(why); });
  switch (call) {
    case wire::CheckpointOperation::kLock:
      return checkpointer_->Lock(pid_, bounds_.lock, then);
    case wire::CheckpointOperation::kCheckpoint:
      return checkpointer_->Checkpoint(pid_, then);
    case wire::CheckpointOperation::kRestore:
      return checkpointer_->Restore(pid_, parts_.Pairs(), then);
    case wire::CheckpointOperation::kUnlock:
      return checkpointer_->Unlock(pid_, then);
    case wire::CheckpointOperation::kState:
      return FindOut(why);
  }
}

// The program itself knows what came of its last call.
void Suspension::FindOut(const Error& why) {
  ask_at_ = kNever;
  asked_why_ = why;
  checkpointer_->State(pid_, [this, alive = alive_](const Result<cuda::CUprocessState>& state) {
    if (!*alive) return;
    const Nanos now = MonotonicNow();
    if (state) return FoundOut(*state, Error(asked_why_), now);
    AskLater(state.error(), now);
  });
}

void Suspension::AskLater(const Error& error, Nanos now) {
  if (asked_why_.message.empty()) asked_why_ = error;
  if (++tries_ < kMostTries) {
    ask_at_ = now + kBetweenTries;
    return;
  }
  log::Error("nobody can say what became of process {}: {}", pid_, error.Text());
  StayAway(Error(asked_why_), now);
}

void Suspension::FoundOut(cuda::CUprocessState state, const Error& why, Nanos now) {
  const bool saves = phase_ == kSaves && !returns_;
  switch (state) {
    case cuda::CU_PROCESS_STATE_RUNNING:
      return saves ? Undo(why, now) : Back(now);
    case cuda::CU_PROCESS_STATE_LOCKED:
      return Unlock(saves ? std::optional(why) : std::nullopt);
    case cuda::CU_PROCESS_STATE_CHECKPOINTED:
      return phase_ == kSaves ? Saved(now) : StayAway(why, now);
    case cuda::CU_PROCESS_STATE_FAILED:
      parts_.Note(EventType::kProcessLost, fmt::format("cannot use its GPU any more: {}", why.Text()));
      return Undo({ENOTRECOVERABLE, fmt::format("the driver lost process {}: {}", pid_, why.message),
                   "its CUDA calls fail from now on; end it"},
                  now);
  }
}

// It runs from now on; `why`: though it was to be away.
void Suspension::Unlock(std::optional<Error> why) {
  checkpointer_->Unlock(pid_, WhenDone([this, why = std::move(why)](const Result<void>& unlocked, Nanos now) {
                          // Another daemon's call may still be under way.
                          if (!unlocked) return AskLater(unlocked.error(), now);
                          why ? Undo(*why, now) : Back(now);
                        }));
}

// Also while what it left in place goes on. For a migration that goes to another mover, or is waited for there.
void Suspension::Saved(Nanos now) {
  PassFault("suspension.saved");
  if (!relocation_.Waits()) relocation_.Begin(now);
  if (!for_migration_ && relocation_.Goes(pid_, parts_, bounds_.still, now)) return;
  relocation_.End();
  parts_.GiveUpRoom();
  Enter(kSuspended, now);
  figures_.Note(SuspensionResult::kSuspended, ByItself());
  log::Info("process {} is suspended", pid_);
  const char* why = ByItself() ? "was idle, and is" : "is";
  parts_.Note(EventType::kProcessSuspended,
              fmt::format("{} suspended after {:.2f} s", why, SecondsSince(began_at_, now)));
  Step(now);
}

// ---- in a file ----

void Suspension::Rest(Nanos now) {
  if (returns_) began_at_ = now;
  if (returns_ && !file_.Exists()) return Enter(kReturns, now);
  if (!returns_ && !to_file_) return;
  parts_.SetError("");
  returns_ ? file_.Read(now) : file_.Write(now);
  Enter(returns_ ? kReads : kFiles, now);
}

void Suspension::AwaitFile(Nanos now) {
  const auto ended = file_.Ended(now);
  if (!ended) return;
  to_file_ = false;
  if (!*ended) return StayAway(ended->error(), now);
  Enter(phase_ == kReads ? kReturns : kSuspended, now);
}

void Suspension::Undo(Error why, Nanos now) {
  log::Warn("process {} cannot be suspended: {}", pid_, why.Text());
  parts_.SetError(why.Text());
  figures_.Note(why.code == ENOTRECOVERABLE ? SuspensionResult::kLost : SuspensionResult::kFailed, ByItself());
  failure_ = std::move(why);
  Enter(kNone, now);
  over_ = true;
}

// ---- back ----

void Suspension::Return(Nanos now) {
  returns_ = true;
  failure_.reset();
  parts_.SetError("");
  if (phase_ >= kSaves) parts_.SayAway(returns_ || for_migration_);
  Step(now);
}

void Suspension::Stay() {
  parts_.SetByItself(false);
  returns_ = false;
  if (phase_ >= kSaves) parts_.SayAway(for_migration_);
}

void Suspension::AwaitRoom(Nanos now) {
  const auto all = parts_.TakeRoomBack(now);
  if (!all) return StayAway(all.error(), now);
  if (*all) Restore();
}

void Suspension::Restore() {
  PassFault("suspension.roomy");
  Enter(kRestores, MonotonicNow());
  checkpointer_->Restore(pid_, parts_.Pairs(), WhenDone([this](const Result<void>& restored, Nanos) {
                           if (restored) PassFault("suspension.restored");
                           restored ? Unlock({}) : CallFailed(restored.error(), wire::CheckpointOperation::kRestore);
                         }));
}

void Suspension::Back(Nanos now) {
  PassFault("suspension.unlocked");
  figures_.Note(SuspensionResult::kResumed, ByItself());
  log::Info("process {} is back", pid_);
  parts_.HaveReturned();
  parts_.Note(EventType::kProcessResumed, fmt::format("is back after {:.2f} s", SecondsSince(began_at_, now)));
  Enter(kNone, now);
  over_ = true;
}

void Suspension::StayAway(Error why, Nanos now) {
  figures_.Note(SuspensionResult::kFailed, ByItself());
  log::Warn("process {} stays suspended: {}", pid_, why.Text());
  parts_.StayAway(why.Text());
  returns_ = for_migration_ = false;
  Enter(kSuspended, now);
  parts_.SayAway(false);
  failure_ = std::move(why);
}

}  // namespace tessera::server
