#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/checkpoint/checkpointer.h"
#include "server/checkpoint/moving_figures.h"
#include "server/checkpoint/program_file.h"
#include "server/checkpoint/program_parts.h"
#include "server/checkpoint/relocation_wait.h"
#include "server/gpu/gpu_server.h"
#include "server/model/suspension_state.h"
#include "server/record/events.h"

namespace tessera::server {

struct SuspensionBounds {
  Nanos drain = 30 * kSecond;  // how long what it has queued may take
  Nanos still = 30 * kSecond;  // how long nothing may be moved while memory is to go out
  Nanos lock = 10 * kSecond;   // how long the driver may wait for calls that are under way
};

// Takes one program off all of its GPUs, its contexts included, and brings it back. While it is away, its threads wait
// in the driver or at their gates, and notice nothing but the time.
//
// The way out: its gates close, and what it had queued ends; what Tessera can move goes to host memory, and the program
// lets go of that, as the driver could not restore a program that holds it; the driver saves the rest in the program
// itself (cuCheckpointProcessCheckpoint). The way back is the same backwards. What fails before the driver has saved it
// is undone: the program goes on. Afterwards it stays suspended, with the reason in SuspensionState::error, and can be
// resumed again. On the loop's thread, which it never blocks: Step is to be called now and then.
class Suspension {
 public:
  using Bounds = SuspensionBounds;

  // The GPUs, the files and the figures outlive the object. `checkpointer` makes the calls for this program.
  Suspension(pid_t pid, const std::vector<std::unique_ptr<GpuServer>>& gpus, SuspendedFiles& files,
             MovingFigures& figures, std::unique_ptr<Checkpointer> checkpointer, const Bounds& bounds);
  Suspension(const Suspension&) = delete;
  ~Suspension();

  // Begins. ESRCH: it is in no vGPU. ENOTSUP: it uses what the driver cannot save, which is named; nothing has changed.
  Result<void> Begin(Nanos now);
  // Goes on where an earlier daemon left off: the program says that it was about to be saved, or was. The driver says
  // what it is, and nothing of it runs before that is known. `returns`: it was to come back. Instead of Begin.
  void TakeOver(bool returns, Nanos now);
  // Whether it is suspended because it was idle. Before Begin or after.
  void SetByItself(bool by_itself) { parts_.SetByItself(by_itself); }
  bool ByItself() const { return parts_.ByItself(); }
  // A process of the program that joins a vGPU meanwhile.
  void Joining(Process& process, Nanos now) const;
  // What it has in host memory is to go to a file, as soon as it is suspended.
  void ToFile() { to_file_ = true; }
  // It is away for a migration only: if this daemon ends meanwhile, the next one brings it back. `in_place`: what
  // Tessera moves stays in the GPU's memory. Before Begin.
  void ForMigration(bool in_place) { for_migration_ = true, in_place_ = in_place; }
  // Somebody wants it away: it stays until Return, though it was idle only, or was to come back. Before it comes back.
  void Stay();
  // Begins the way back, as soon as it is suspended: to the GPUs where its vGPUs are by then.
  void Return(Nanos now);
  void Step(Nanos now);

  SuspensionPhase Phase() const { return phase_; }
  bool Returns() const { return returns_; }  // as soon as it can
  // It runs again, or has ended: the object can go.
  bool Over() const { return over_; }
  // It runs because it could not be suspended, or is suspended though it was to return; for this reason.
  const std::optional<Error>& Failure() const { return failure_; }

 private:
  void Enter(SuspensionPhase phase, Nanos now);
  void AwaitDrain(Nanos now);
  void AwaitLeave(Nanos now);
  void Save(Nanos now);
  void AwaitQuiet(Nanos now);
  void Lock();
  void Saved(Nanos now);
  void CallFailed(const Error& why, wire::CheckpointOperation call);
  void FindOut(const Error& why);
  void AskLater(const Error& error, Nanos now);
  void FoundOut(cuda::CUprocessState state, const Error& why, Nanos now);
  void Unlock(std::optional<Error> why);
  void Rest(Nanos now);
  void AwaitFile(Nanos now);
  void AwaitRoom(Nanos now);
  void Restore();
  void Back(Nanos now);
  void Undo(Error why, Nanos now);
  void StayAway(Error why, Nanos now);
  template <typename Done>
  std::function<void(Result<void>)> WhenDone(Done done);

  const pid_t pid_;
  const ProgramParts parts_;
  MovingFigures& figures_;
  const std::unique_ptr<Checkpointer> checkpointer_;
  const Bounds bounds_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  SuspensionPhase phase_ = SuspensionPhase::kNone;
  Nanos entered_ = 0;               // when the phase began,
  Nanos since_ = 0;                 // or memory last moved in it
  std::uint64_t left_to_move_ = 0;  // bytes, at the last look
  ProgramFile file_;
  bool to_file_ = false;  // it is to go there
  RelocationWait relocation_;
  bool quiet_ = false;  // kSaves: no thread of Tessera's is in the driver, and it was asked to lock
  bool for_migration_ = false, in_place_ = false;
  bool taken_over_ = false;  // and nothing was asked yet
  bool returns_ = false;     // it is to come back as soon as it can
  int tries_ = 0;            // how often the driver was asked in vain what the program is
  Nanos ask_at_ = kNever;    // when to ask again,
  Error asked_why_;          // for this reason
  Nanos began_at_ = 0;       // the way out, or back
  bool over_ = false;
  std::optional<Error> failure_;
};

}  // namespace tessera::server
