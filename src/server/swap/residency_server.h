#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/residency/residency.h"
#include "server/model/vgpu.h"
#include "server/swap/mover.h"

namespace tessera::server {

enum class RoomAnswer { kGranted, kWait, kNever };

// Serves the room of one GPU, and sees to it that what runs is resident: grants room, lets a mover bring memory out and
// in, stops programs meanwhile. What is right at any time follows from the policy's decisions (sched::Residency) and
// from where memory lies now: Work() looks at both, and does what is missing. docs/memory.md. Runs on the loop's
// thread.
class ResidencyServer {
 public:
  // What it needs of the GPU server.
  struct Host {
    // Bytes of the GPU's memory that room may be granted of, and nothing of a promise: what the contexts and everybody
    // who counts no room have is taken off.
    std::function<std::uint64_t()> capacity;
    // Bytes of a vGPU's limit that its processes may have as room; nullopt: it has none.
    std::function<std::optional<std::uint64_t>(const VGpu&)> promise;
    std::function<void(Process&, MemoryHold)> hold;
    // Whether nothing of it can execute: its channels are frozen, or its work has drained.
    std::function<bool(const Process&)> still;
    std::function<Result<std::unique_ptr<Mover>>(std::function<void(const wire::MoverMessage*)>)> start_mover;
  };

  // `swap_max`: bytes that the pool may have; `file`: bytes of its file, 0: it has none. The loop and the vGPUs outlive
  // the server.
  ResidencyServer(EventLoop& loop, std::uint32_t gpu, const sched::ResidencyConfig& config, std::uint64_t swap_max,
                  std::uint64_t file, const std::vector<VGpu*>& vgpus, Host host);

  void Configure(const sched::ResidencyConfig& config) { policy_.Configure(config); }

  // vGPUs and processes; called after they were added and before they are removed. A process of which a kernel could
  // not touch everything stands still from Join on, until a mover has settled that.
  void Add(const VGpu& vgpu);
  void Update(const VGpu& vgpu);
  void Remove(const VGpu& vgpu);
  // `had`: bytes that it held when it came, under an earlier daemon.
  void Join(Process& process, std::uint64_t had);
  void Leave(Process& process);

  // The program's end of a new line to the mover; the old one, if there is any, is dead. Empty if none can be made.
  UniqueFd MakeLine(Process& process);

  // The process needs room.
  RoomAnswer Ask(Process& process, std::uint64_t bytes);

  // Something happened that may matter: work began or ended, memory was freed, terms changed.
  void Work();

  // Brings `bytes` of the process's memory out now; it comes back when it is used. ENOSYS if it has no line, EAGAIN
  // if there is no mover.
  Result<void> Push(Process& process, std::uint64_t bytes);

  struct Figures {
    std::uint64_t swap_max = 0, pool = 0, pool_used = 0;
    std::uint64_t file = 0, file_used = 0;
    int file_error = 0;  // errno value of why nothing more is written to the file
    std::uint64_t capacity = 0;
    pid_t mover = 0;
    std::string decision;  // for people
    bool turns = false;
    Nanos turn = 0;
    Histogram moves_out, moves_in;
  };
  Figures FiguresNow() const;
  std::uint64_t SwapMax() const { return swap_max_; }
  // Its pid (0: none runs): it is nobody's program.
  pid_t MoverPid() const { return mover_ ? mover_->Pid() : 0; }

  static std::uint64_t Credit(const Process& process);
  static std::uint64_t Pinned(const Process& process);   // of its room
  static std::uint64_t Movable(const Process& process);  // what of it could be brought out
  static std::uint64_t Swapped(const Process& process);
  static std::uint64_t HotOut(const Process& process);    // of that: what it uses more than what it has on the GPU
  static std::uint64_t Recalled(const Process& process);  // of that, what must come back, whoever runs
  static std::uint64_t Taken(const Process& process);     // of its room: what it has on the GPU
  static std::uint64_t Evicting(const Process& process);  // what a Push has still to bring out
  // Since they began, the vGPU's with those of processes that have left.
  static Moves MovesOf(const Process& process, Nanos now);
  static Moves MovesOf(const VGpu& vgpu, Nanos now);
  static Nanos Waited(const Process& process, Nanos now);

 private:
  struct Decision {
    std::uint64_t target = 0;
    bool runs = false;
    bool operator==(const Decision&) const = default;
  };
  // The last one of a vGPU, since when, and whether the policy has heard that it is carried out.
  struct Standing {
    Decision decision;
    Nanos since = 0;
    bool ready = false;
  };

  void Look();
  void Inform(Nanos now);
  Decision DecisionFor(const VGpu& vgpu) const;
  void TakeBackCredits();
  void Serve(VGpu& vgpu, Nanos now);
  void BeginExchange(Process& process, Nanos now);
  void Evict(VGpu& vgpu, std::uint64_t excess, Nanos now);
  void Load(VGpu& vgpu, std::uint64_t target, Nanos now);
  void GrantWishes(VGpu& vgpu, std::uint64_t target);
  void LetRun(VGpu& vgpu, Nanos now);
  void LetRest(Process& process, Nanos now);
  void LetAllRun(VGpu& vgpu, Nanos now);
  void Stop(Process& process, Nanos now);
  void Run(Process& process, Nanos now);
  bool Order(Process& process, Residence::Doing doing, std::uint64_t bytes, Nanos now);
  std::uint64_t Used() const;
  std::uint64_t Free() const;
  std::uint64_t SwapLeft(const VGpu& vgpu) const;
  std::uint64_t MaySwap(const VGpu& vgpu) const;
  std::uint64_t Kept(const VGpu& vgpu) const;
  std::uint64_t KeptBeside(const VGpu& vgpu) const;
  static std::uint64_t TakenInAdvance(const VGpu& vgpu);
  static std::uint64_t GoingOut(const VGpu& vgpu);  // what will leave room behind
  static std::uint64_t OutSoon(const VGpu& vgpu);   // what is in host memory, or about to be
  static void AddRoom(Process& process, std::uint64_t bytes);
  void NoteDecision(const VGpu& vgpu, Nanos now);
  void NoteWaits(Nanos now);
  bool Pressed() const;
  bool EnsureMover(Nanos now);
  void GrowPool();
  void OnMover(const wire::MoverMessage* message);
  void Introduce(Process& process);
  void Done(Process& process, const wire::MoverMessage& message, Nanos now);
  void TraceMove(Process& process, Nanos now) const;
  void Grant(Process& process, std::uint64_t bytes);
  Process* Find(std::uint64_t number) const;
  static void Abandon(Residence& residence);
  static void FindLost(Process& process);
  static std::uint64_t Untold(const Process& process);  // ordered and done, which the mover has not told yet
  static std::uint64_t Coming(const Process& process);  // on its way to the GPU: its room is taken already
  // All that can be moved, wherever it is. Of what it says that it has in host memory `most` is believed.
  static std::uint64_t Has(const Process& process, std::uint64_t most = UINT64_MAX);
  static std::uint64_t Granted(const Process& process);
  static bool Active(const Process& process);
  static bool Active(const VGpu& vgpu);
  static std::uint64_t Resident(const VGpu& vgpu);  // movable bytes
  static std::uint64_t Wanted(const VGpu& vgpu);    // room that it waits for
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (VGpu* vgpu : vgpus_) {
      for (Process* process : vgpu->processes) visit(*process);
    }
  }

  EventLoop& loop_;
  const std::uint32_t gpu_;
  const std::uint64_t swap_max_, file_;
  const std::vector<VGpu*>& vgpus_;
  const Host host_;
  sched::Residency policy_;
  EventLoop::Timer timer_;
  bool working_ = false;
  bool again_ = false;
  bool was_pressed_ = false;
  std::uint64_t next_number_ = 1;
  std::map<VgpuId, Standing> standings_;

  std::unique_ptr<Mover> mover_;
  bool mover_ready_ = false;
  bool mover_gone_ = false;  // its object is destroyed at the next look
  Nanos next_start_ = 0;
  Histogram moves_out_, moves_in_;  // how long it took until what was ordered of a process was done
  Nanos last_moved_ = 0;            // when the mover last said that it had
  std::uint64_t pool_ = 0, pool_used_ = 0, pool_wanted_ = 0;
  Nanos pool_grew_at_ = 0;  // a move that waits for that takes longer than others will
  std::uint64_t file_used_ = 0;
  int file_error_ = 0;
  Nanos pool_full_until_ = 0;  // host memory that was needed was not to be had
  std::string why_no_mover_;
  int failed_starts_ = 0;  // of movers, in a row
};

}  // namespace tessera::server
