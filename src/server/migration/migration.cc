#include "server/migration/migration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fault.h"
#include "base/size.h"
#include "server/checkpoint/obstacles.h"
#include "server/migration/vgpu_transfer.h"
#include "server/record/events.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// How long programs work on while the new GPUs' movers start.
constexpr Nanos kMostPreparing = 5 * kSecond;

// It does not start just now.
bool MoverStands(GpuServer& gpu) {
  return !gpu.Swaps() || gpu.Residency().Link().Ready() || !gpu.Residency().Link().Exists();
}

// They are there when they are needed.
void StartMovers(GpuServer& from, GpuServer& to, Nanos now) {
  for (GpuServer* gpu : {&from, &to}) {
    if (gpu->Swaps()) gpu->Residency().StartMover(now);
  }
}

Result<void> CheckTarget(const VGpu& vgpu, const VGpuTable::Gpus& gpus, std::uint32_t number) {
  const GpuInfo& from = gpus[vgpu.gpu]->Info();
  if (number >= gpus.size()) return Fail(ENOENT, fmt::format("there is no GPU {}", number), "tessera gpus lists them");
  const GpuInfo& to = gpus[number]->Info();
  if (number == vgpu.gpu) return {};
  if (from.name != to.name || from.memory_total != to.memory_total)
    return Fail(ENOTSUP,
                fmt::format("GPU {} is a {} of {}, and GPU {} a {} of {}", number, to.name, FormatSize(to.memory_total),
                            vgpu.gpu, from.name, FormatSize(from.memory_total)),
                "a program can only go to a GPU of the same type");
  if (!vgpu.spec.space.empty())
    return Fail(ENOTSUP, fmt::format("vGPU {} is in space {}, which stays on its GPU", vgpu.spec.name, vgpu.spec.space),
                "end its programs, and make it anew on the other GPU");
  return gpus[number]->Health().TakesNewcomers();
}

}  // namespace

Migration::Migration(std::vector<VGpuMove> moves, VGpuTable& table, const VGpuTable::Gpus& gpus,
                     Suspensions& suspensions, const Means& means)
    : table_(table), gpus_(gpus), suspensions_(suspensions), means_(means) {
  for (const VGpuMove& move : moves) {
    const VGpu* vgpu = table.Find(move.vgpu);
    if (vgpu) parts_.push_back({.vgpu = move.vgpu, .from = vgpu->gpu, .to = move.to});
  }
}

Migration::~Migration() { *alive_ = false; }

bool Migration::Moves(VgpuId vgpu) const {
  return !Over() && std::ranges::find(parts_, vgpu, &Part::vgpu) != parts_.end();
}

std::vector<Process*> Migration::Processes() const {
  std::vector<Process*> processes;
  for (const Part& part : parts_) {
    if (const VGpu* vgpu = table_.Find(part.vgpu)) std::ranges::copy(vgpu->processes, std::back_inserter(processes));
  }
  return processes;
}

// ---- whether it can be ----

// The programs of a vGPU use no other one.
Result<void> Migration::CheckWhole(const VGpu& vgpu) const {
  for (const Process* process : vgpu.processes) {
    if (process->suspension.Absent() && process->residence.own_file.in)
      return Fail(EBUSY, fmt::format("process {} is suspended to a file of its GPU", process->pid), "resume it first");
    for (const auto& gpu : gpus_) {
      for (const VGpu* other : gpu->VGpus()) {
        if (std::ranges::find(parts_, other->id, &Part::vgpu) != parts_.end()) continue;
        if (std::ranges::find(other->processes, process->pid, &Process::pid) == other->processes.end()) continue;
        return Fail(ENOTSUP,
                    fmt::format("process {} ({}) of vGPU {} also uses vGPU {} on GPU {}", process->pid,
                                process->who.program, vgpu.spec.name, other->spec.name, other->gpu),
                    "move the program, and name a GPU for each of its vGPUs: tessera migrate PID --gpu 1,0");
      }
    }
  }
  return {};
}

// There a program cannot use host memory (docs/migration.md), so that all it has must be on the GPU while it runs.
Result<void> Migration::CheckSize(const VGpu& vgpu, std::uint32_t to) const {
  if (to == vgpu.gpu || !gpus_[to]->Swaps()) return {};
  const std::uint64_t capacity = gpus_[to]->Placement().RoomCapacity();
  const std::uint64_t most = std::min(vgpu.spec.memory.limit.value_or(capacity), capacity);
  for (const Process* process : vgpu.processes) {
    const std::uint64_t needed = process->memory.Current();
    if (needed > most)
      return Fail(
          ENOTSUP,
          fmt::format("process {} ({}) has {}, and vGPU {} can have {} on GPU {}: a program that was migrated "
                      "cannot work from host memory",
                      process->pid, process->who.program, FormatSize(needed), vgpu.spec.name, FormatSize(most), to),
          "free some of its memory first, or raise memory.limit");
  }
  return {};
}

Result<void> Migration::Check() const {
  std::set<std::uint32_t> targets;
  for (const Part& part : parts_) {
    const VGpu& vgpu = *table_.Find(part.vgpu);
    if (auto may = CheckTarget(vgpu, gpus_, part.to); !may) return may;
    // One of them may be this vGPU's. It would stay behind.
    if (gpus_[part.from]->Survivors().Missing() > 0) {
      std::vector<pid_t> pids;
      for (const ProcessName& program : gpus_[part.from]->Survivors().All()) pids.push_back(program.pid);
      return Fail(EBUSY,
                  fmt::format("programs that an earlier daemon had on GPU {} have not come back yet: {}", part.from,
                              fmt::join(pids, ", ")),
                  "try again in a moment, or end them");
    }
    if (auto whole = CheckWhole(vgpu); !whole) return whole;
    if (auto fits = CheckSize(vgpu, part.to); !fits) return fits;
    const bool shares = std::ranges::any_of(vgpu.processes, [&](const Process* process) {
      return std::ranges::any_of(parts_, [&](const Part& other) {
        return other.vgpu != part.vgpu && other.to == part.to &&
               std::ranges::find(table_.Find(other.vgpu)->processes, process->pid, &Process::pid) !=
                   table_.Find(other.vgpu)->processes.end();
      });
    });
    if (shares)
      return Fail(EINVAL, fmt::format("two vGPUs of one program are to be on GPU {}", part.to),
                  "name another GPU for each");
  }
  std::set<pid_t> pids;
  const std::vector<Process*> all = Processes();
  for (const Process* process : all) pids.insert(process->pid);
  for (const pid_t pid : pids) {
    std::vector<const Process*> its;
    for (const Process* process : all) {
      if (process->pid == pid) its.push_back(process);
    }
    if (suspensions_.Find(pid)) continue;  // it was looked at
    if (auto may = MayLeave(pid, its); !may) return may;
  }
  return {};
}

// ---- the move ----

Result<void> Migration::Begin(Nanos now) {
  if (auto may = Check(); !may) return may;
  began_at_ = now;
  for (const Part& part : parts_) {
    table_.Find(part.vgpu)->migrate_error.clear();
    if (part.to != part.from) StartMovers(*gpus_[part.from], *gpus_[part.to], now);
  }
  for (const Process* process : Processes()) {
    pids_.insert(process->pid);
    if (suspensions_.Find(process->pid)) was_suspended_.insert(process->pid);
  }
  return Prepare(now);
}

Result<void> Migration::Prepare(Nanos now) {
  const bool late = now - began_at_ > kMostPreparing;
  if (!late && !MoversReady()) return {};
  ways_.Open(Processes(), gpus_, [this](VgpuId vgpu) { return TargetOf(vgpu); }, *means_.unreachable);
  return late || ways_.Settled() ? SuspendAll(now) : Result<void>();
}

// One that starts would keep the driver from what the programs wait for.
bool Migration::MoversReady() const {
  return pids_.empty() || std::ranges::all_of(parts_, [&](const Part& part) {
           return part.to == part.from || (MoverStands(*gpus_[part.from]) && MoverStands(*gpus_[part.to]));
         });
}

Result<void> Migration::SuspendAll(Nanos now) {
  phase_ = Phase::kSuspends;
  pids_.clear();  // some may have ended
  for (const Process* process : Processes()) pids_.insert(process->pid);
  for (const pid_t pid : pids_) {
    auto begun = Suspend(pid, now);
    if (begun) continue;
    GiveUp(begun.error(), now);
    return begun;
  }
  AwaitSuspended(now);
  return {};
}

Result<void> Migration::Suspend(pid_t pid, Nanos now) {
  using To = Suspensions::To;
  return suspensions_.Suspend(pid, now, ways_.Has(pid) ? To::kOtherGpuInPlace : To::kOtherGpu);
}

void Migration::Step(Nanos now) {
  switch (phase_) {
    case Phase::kPrepares:
      (void)Prepare(now);  // an error ends it
      return;
    case Phase::kSuspends:
      return AwaitSuspended(now);
    case Phase::kRecords:
      return AwaitRecorded(now);
    case Phase::kReturns:
      return AwaitReturned(now);
    case Phase::kOver:
      return;
  }
}

// A program that has ended is in nobody's way. One that came to a vGPU meanwhile goes along. What has left the GPU is
// handed over while the driver saves the rest.
void Migration::AwaitSuspended(Nanos now) {
  bool all = true;
  for (const Process* process : Processes()) {
    if (pids_.insert(process->pid).second) {
      if (auto begun = Suspend(process->pid, now); !begun) return GiveUp(begun.error(), now);
    }
    const Suspension* suspension = suspensions_.Find(process->pid);
    if (!suspension) {
      const std::string& why = process->suspension.error;
      return GiveUp({EIO, why.empty() ? fmt::format("process {} was resumed meanwhile", process->pid) : why, ""}, now);
    }
    const bool suspended = suspension->Phase() == SuspensionPhase::kSuspended;
    all &= suspended;
    if ((suspended || suspension->Phase() == SuspensionPhase::kSaves) &&
        left_.emplace(process->pid, process->vgpu->id).second)
      to_give_.emplace_back(process->pid, process->vgpu->id);
  }
  if (auto may = GiveNext(); !may) return GiveUp(may.error(), now);
  if (all && !gives_ && to_give_.empty()) Move(now);
}

// First the other movers have everything as well, then the vGPUs move, and then the first movers let go: what fails
// before that changes nothing.
Result<void> Migration::GiveNext() {
  while (!gives_ && !to_give_.empty()) {
    const auto [pid, id] = to_give_.back();
    to_give_.pop_back();
    const auto part = std::ranges::find(parts_, id, &Part::vgpu);
    const VGpu* vgpu = table_.Find(id);
    if (!vgpu || part->to == vgpu->gpu) continue;
    // It may have been on its way to a file when this began.
    if (auto whole = went_back_ ? Result<void>() : CheckWhole(*vgpu); !whole) return whole;
    const auto process = std::ranges::find(vgpu->processes, pid, &Process::pid);
    if (process == vgpu->processes.end() || (*process)->residence.Swapped() == 0) continue;
    // Slots that came to this GPU just now: a program may exchange its GPUs.
    std::set<std::uint64_t> came;
    for (const auto& given : given_) came.merge(given->Numbers());
    gives_ = true;
    means_.give(**process, *gpus_[vgpu->gpu], *gpus_[part->to], std::move(came),
                [this, alive = alive_, from = vgpu->gpu, to = part->to](Result<MemoryGiver::Given> given) {
                  if (!given && given.error().code == EINVAL) means_.unreachable->emplace(from, to);
                  if (*alive) Given(std::move(given));
                });
  }
  return {};
}

void Migration::Given(Result<MemoryGiver::Given> given) {
  gives_ = false;
  if (phase_ != Phase::kSuspends) return;
  const Nanos now = MonotonicNow();
  if (!given) return GiveUp(given.error(), now);
  given_.push_back(std::move(*given));
  AwaitSuspended(now);
}

// One may have taken more memory since this began.
void Migration::Move(Nanos now) {
  for (const Part& part : parts_) {
    const VGpu* vgpu = went_back_ ? nullptr : table_.Find(part.vgpu);
    if (auto fits = vgpu ? CheckSize(*vgpu, part.to) : Result<void>(); !fits) return GiveUp(fits.error(), now);
  }
  PassFault("migration.given");
  ways_.Close(Processes());
  if (auto moved = MoveVGpus(now); !moved) return GiveUp(moved.error(), now);
  // If the daemon ends now, the state files lead the next one to either GPU.
  for (const auto& given : given_) given->KeepBoth();
  PassFault("migration.moved");
  recorded_ = means_.save();
  phase_ = Phase::kRecords;
  AwaitRecorded(now);
}

// A daemon that came now would look for the programs' host memory where the state files say that the vGPUs are.
void Migration::AwaitRecorded(Nanos now) {
  if (!recorded_()) return;
  PassFault("migration.recorded");
  for (const auto& given : given_) given->Commit();
  given_.clear();
  phase_ = Phase::kReturns;
  ReturnAll(now);
}

Result<void> Migration::MoveVGpus(Nanos now) {
  std::vector<VGpuTransfer> transfers;
  for (const Part& part : parts_) {
    VGpu* vgpu = table_.Find(part.vgpu);
    if (vgpu && vgpu->gpu != part.to) transfers.push_back({vgpu, part.to});
  }
  auto moved = Transfer(transfers, gpus_, now);
  if (moved) table_.HaveMoved();
  if (moved) ways_.Arrived(Processes());
  return moved;
}

void Migration::ReturnAll(Nanos now) {
  for (const pid_t pid : pids_) {
    if (!was_suspended_.contains(pid)) suspensions_.Resume(pid, now);
  }
}

void Migration::BringBack(pid_t pid, Nanos now) {
  was_suspended_.erase(pid);
  if (phase_ == Phase::kReturns) suspensions_.Resume(pid, now);
}

void Migration::AwaitReturned(Nanos now) {
  bool all = true, any_back = false;
  std::optional<Error> why;
  for (const pid_t pid : pids_) {
    if (was_suspended_.contains(pid)) continue;
    const Suspension* suspension = suspensions_.Find(pid);
    all &= suspension == nullptr;
    any_back |= suspension == nullptr;
    if (suspension && suspension->Failure()) why = suspension->Failure();
  }
  if (all) return End(now);
  if (!why) return;
  if (!any_back && !went_back_ && !failure_) return GoBack(*why, now);
  if (!failure_) failure_ = why;  // what is back stays, and the others can be resumed
  End(now);
}

void Migration::GoBack(const Error& why, Nanos now) {
  log::Warn("programs cannot be restored on their new GPU, and go back: {}", why.Text());
  failure_ = why;
  went_back_ = true;
  for (Part& part : parts_) std::swap(part.from, part.to);
  left_.clear();
  phase_ = Phase::kSuspends;
  AwaitSuspended(now);
}

// Nothing has moved since: the programs go on where they are.
void Migration::GiveUp(Error why, Nanos now) {
  given_.clear();
  ways_.Arrived(Processes());  // what has left comes back the same way
  if (!failure_) failure_ = std::move(why);
  ReturnAll(now);
  End(now);
}

void Migration::End(Nanos now) {
  phase_ = Phase::kOver;
  for (const Part& part : parts_) {
    VGpu* vgpu = table_.Find(part.vgpu);
    if (!vgpu) continue;
    if (part.from != part.to)
      ++(failure_ ? suspensions_.Figures().vgpus_not_moved : suspensions_.Figures().vgpus_moved);
    vgpu->migrate_error = failure_ ? failure_->Text() : "";
    const double took = static_cast<double>(now - began_at_) / kSecond;
    events::Note({.type = EventType::kVGpuMigrated,
                  .gpu = vgpu->gpu,
                  .vgpu = vgpu->spec.name,
                  .owner = vgpu->spec.uid,
                  .text = failure_ ? fmt::format("it stays on GPU {}: {}", vgpu->gpu, failure_->Text())
                                   : fmt::format("from GPU {} to GPU {} in {:.2f} s{}", part.from, part.to, took,
                                                 ways_.Any() ? ", its memory directly" : "")});
  }
}

}  // namespace tessera::server
