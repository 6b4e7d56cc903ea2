#include "server/daemon/daemon.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/install/mps_program.h"
#include "base/size.h"
#include "server/daemon/space_setup.h"
#include "server/daemon/swap_setup.h"
#include "server/migration/rest_movers.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

// Kept back for the driver's own needs unless memory.reserve says otherwise.
std::uint64_t DefaultReserve(const GpuInfo& gpu, bool soft) {
  return soft ? 0 : std::max(gpu.memory_total / 50, 256 * kMiB);
}

Result<std::uint64_t> ReserveFor(const GpuInfo& gpu, bool soft, const std::string& setting) {
  if (setting.empty()) return DefaultReserve(gpu, soft);
  auto reserve = ParseSize(setting, gpu.memory_total);
  if (reserve && *reserve >= gpu.memory_total) {
    return Fail(ERANGE,
                "memory.reserve of " + FormatSize(*reserve) + " leaves nothing of " + FormatSize(gpu.memory_total));
  }
  return reserve;
}

// Of a daemon that ends with its programs. The configuration is the node's as well: its file is for the daemon that
// serves the node.
void LeaveSwapFile(Config& config) {
  if (std::exchange(config.swap_file, "").empty()) return;
  log::Warn("swap.file is not used by a daemon that ends with its programs");
}

const std::string& StateDirOf(const Daemon::Setup& setup) {
  return setup.state_dir.empty() ? setup.run_dir : setup.state_dir;
}

std::string SuspendDirOf(const Daemon::Setup& setup) {
  const std::string& folder = setup.config.suspend_dir;
  return folder.empty() ? StateDirOf(setup) + "/suspended" : folder;
}

// The programs of the GPU's vGPUs, and those of an earlier daemon that have not come back.
std::vector<ProcessName> ProgramsOf(GpuServer& gpu) {
  std::vector<ProcessName> programs;
  const auto add = [&](const ProcessName& program) {
    if (std::ranges::find(programs, program) == programs.end()) programs.push_back(program);
  };
  for (const VGpu* vgpu : gpu.VGpus()) {
    for (const Process* process : vgpu->processes) {
      if (process->who.start != 0) add({process->pid, process->who.start});
    }
  }
  std::ranges::for_each(gpu.Survivors().All(), add);
  return programs;
}

// A program that has not come back yet does, too.
bool Uses(GpuServer& gpu, pid_t pid) {
  const auto is = [pid](const auto& each) { return each.pid == pid; };
  const auto has = [&](const VGpu* vgpu) {
    return std::ranges::any_of(vgpu->processes, [&](const Process* process) { return is(*process); });
  };
  return std::ranges::any_of(gpu.VGpus(), has) || std::ranges::any_of(gpu.Survivors().All(), is);
}

std::unique_ptr<StraySlots> MakeStraySlots(EventLoop& loop, const VGpuTable::Gpus& gpus, const Migrations& migrations) {
  std::vector<StraySlots::Pool> pools;
  for (const auto& gpu : gpus) {
    if (!gpu->Swaps()) continue;
    pools.push_back({.link = &gpu->Residency().Link(),
                     .side = [&gpu = *gpu] { return gpu.Placement().HandoverSide(); },
                     .uses = [&gpu = *gpu](pid_t pid) { return Uses(gpu, pid); }});
  }
  return std::make_unique<StraySlots>(loop, std::move(pools),
                                      [&migrations](pid_t pid) { return migrations.Carries(pid); });
}

}  // namespace

Daemon::Daemon(EventLoop& loop, std::unique_ptr<GpuDriver> driver, Setup setup)
    : loop_(loop),
      driver_(std::move(driver)),
      setup_(std::move(setup)),
      authority_({.daemon = geteuid(),
                  .operators = setup_.operators,
                  .users = setup_.config.access_users,
                  .totals = setup_.config.access_totals}),
      channels_(std::move(setup_.control), setup_.why_no_control, setup_.watchdog.get()),
      gangs_(loop, setup_.config),
      client_files_(loop),
      meter_(std::make_unique<DeviceMeter>(loop, *driver_, gpus_)),
      giver_(loop),
      bounds_(setup_.user_bounds),
      linger_timer_(loop, [this] { EndIfIdle(MonotonicNow()); }),
      beat_timer_(loop, [this] { Beat(MonotonicNow()); }),
      steering_check_(loop, channels_.Availability()),
      error_trace_(loop, setup_.run_dir),
      files_(loop, setup_.run_dir, StateDirOf(setup_), [this] { return State(); }, [this] { return LastingVGpus(); }) {}

Result<std::unique_ptr<Daemon>> Daemon::Start(EventLoop& loop, std::unique_ptr<GpuDriver> driver, Setup setup) {
  std::unique_ptr<Daemon> daemon(new Daemon(loop, std::move(driver), std::move(setup)));
  if (auto found = daemon->FindGpus(); !found) return std::unexpected(found.error());
  daemon->spaces_ = MakeSpaces(loop, daemon->setup_.run_dir, daemon->driver_->IsSoft(), daemon->setup_.exit_when_idle,
                               [self = daemon.get()](const Space& space) {
                                 if (!self->ending_) FollowServer(space, self->channels_, self->gpus_, MonotonicNow());
                               });
  daemon->table_ = std::make_unique<VGpuTable>(
      loop, daemon->gpus_, [self = daemon.get()] { self->VGpusChanged(); },
      [self = daemon.get()](VGpu& vgpu, Nanos now) {
        self->kernel_gate_->Abandon(vgpu);
        self->guests_->Abandon(vgpu, now);
      },
      daemon->spaces_.get());
  daemon->suspended_files_ = std::make_unique<SuspendedFiles>(SuspendDirOf(daemon->setup_));
  for (const auto& gpu : daemon->gpus_) gpu->Placement().Heed(*daemon->suspended_files_, daemon->left_memory_);
  daemon->suspensions_ =
      std::make_unique<Suspensions>(loop, daemon->gpus_, *daemon->suspended_files_,
                                    [&loop, soft = daemon->driver_->IsSoft()] { return MakeCheckpointer(loop, soft); });
  daemon->moves_ = std::make_unique<VGpuMoves>(
      loop, *daemon->table_, daemon->gpus_, *daemon->suspensions_,
      Migration::Means{.give = [giver = &daemon->giver_](
                                   const Process& process, GpuServer& from, GpuServer& to, auto but,
                                   auto done) { giver->Give(process, from, to, std::move(but), std::move(done)); },
                       .save = [self = daemon.get()] { return self->files_.Written(); }},
      [self = daemon.get()] { self->VGpusChanged(); });
  daemon->moves_->balancer.Configure(daemon->setup_.config.rebalance_load, MonotonicNow());
  daemon->stray_slots_ = MakeStraySlots(loop, daemon->gpus_, daemon->moves_->migrations);
  daemon->idle_suspension_ = std::make_unique<IdleSuspension>(loop, daemon->gpus_, *daemon->suspensions_,
                                                              daemon->moves_->migrations, daemon->setup_.config);
  daemon->quotas_ = std::make_unique<QuotaKeeper>(daemon->setup_.config.quotas, *daemon->table_, daemon->gpus_);
  daemon->guests_ =
      std::make_unique<GuestServer>(loop, *daemon->table_, daemon->gpus_, daemon->channels_, daemon->bounds_,
                                    [self = daemon.get()] { self->files_.OfBootChanged(); });
  daemon->kernel_gate_ = std::make_unique<KernelGate>(
      loop, daemon->authority_, *daemon->table_, daemon->gpus_, daemon->channels_, *daemon->guests_, daemon->bounds_,
      KernelGate::Setup{.holder_path = daemon->setup_.run_dir + "/gates.sock",
                        .grace = daemon->setup_.config.client_grace,
                        .soft = daemon->driver_->IsSoft()});
  daemon->channels_.OnChange([self = daemon.get()](pid_t pid, Nanos now) {
    for (const auto& gpu : self->gpus_) gpu->Time().ChannelsChanged(pid, now);
    if (self->guests_ && !self->ending_ && self->guests_->Keeps(pid)) self->files_.OfBootChanged();
  });
  // The file must not be overwritten by the half of it that is restored already.
  daemon->restoring_ = true;
  daemon->declarations_ = std::make_unique<Declarations>(*daemon->table_);
  daemon->RestoreVGpus(MonotonicNow());
  (void)daemon->DeclareVGpus(MonotonicNow());
  daemon->restoring_ = false;
  daemon->spaces_->EndLeftOvers();
  if (!daemon->table_->Saved().empty() || daemon->spaces_->Any() || !daemon->moves_->drains.Marked().empty())
    daemon->files_.Changed();
  if (daemon->setup_.watch) daemon->guests_->Watch().Start();
  daemon->kernel_gate_->TakeOver(MonotonicNow());
  daemon->CheckSteering();
  daemon->faults_ = std::make_unique<FaultWatch>(
      loop, *daemon->driver_, [self = daemon.get()](const GpuFault& fault) { self->NoteFault(fault, MonotonicNow()); });
  for (const auto& gpu : daemon->gpus_) gpu->Time().Choose(MonotonicNow());
  daemon->Beat(MonotonicNow());
  auto clients = ClientServer::Start(
      loop, std::move(daemon->setup_.client_listener),
      {.authority = daemon->authority_,
       .quotas = *daemon->quotas_,
       .table = *daemon->table_,
       .gpus = daemon->gpus_,
       .config = daemon->setup_.config,
       .channels = daemon->channels_,
       .guests = *daemon->guests_,
       .kernel_gate = *daemon->kernel_gate_,
       .bounds = daemon->bounds_,
       .spaces = *daemon->spaces_,
       .called = [idle = daemon->idle_suspension_.get()](pid_t pid, Nanos now) { idle->Called(pid, now); }});
  if (!clients) return std::unexpected(clients.error());
  daemon->clients_ = std::move(*clients);
  daemon->ServePrograms();
  daemon->clients_->OnEmpty([self = daemon.get()] { self->StayAwhile(MonotonicNow()); });
  if (daemon->setup_.exit_when_idle) {
    daemon->linger_until_ = MonotonicNow() + kFirstLinger;
    daemon->linger_timer_.Arm(daemon->linger_until_);
  }
  return daemon;
}

// Programs do without what cannot be served.
void Daemon::ServePrograms() {
  auto containers = ContainerGate::Start(loop_, setup_.run_dir + "/seccomp.sock", *table_, *kernel_gate_, authority_);
  if (!containers) log::Warn("containers cannot be behind the kernel gate: {}", containers.error().Text());
  if (containers) container_gate_ = std::move(*containers);
  auto requests = RequestSocket::Start(loop_, setup_.run_dir, *table_);
  if (!requests) log::Warn("programs cannot tell of their requests: {}", requests.error().Text());
  if (requests) requests_ = std::move(*requests);
}

// The next daemon finds the programs' last orders and the vGPUs of state.json as they were before.
Daemon::~Daemon() {
  ending_ = true;
  sm_orders_.End();
  faults_.reset();
  for (const auto& gpu : gpus_) gpu->Time().Seal();
  files_.Finish();
  channels_.Freezer().LetGo();
  container_gate_.reset();
  requests_.reset();
  clients_.reset();  // before the timers that their leaving would set
  kernel_gate_.reset();
  guests_.reset();
}

void Daemon::CheckSteering() {
  std::vector<std::string> gpus;
  for (const auto& gpu : gpus_) gpus.push_back(FormatUuid(gpu->Info().uuid));
  steering_check_.Start(gpus, driver_->IsSoft(), [this] { SteeringChecked(MonotonicNow()); });
}

void Daemon::SteeringChecked(Nanos now) {
  guests_->Restore(saved_processes_, now);
  saved_processes_.clear();
  for (const auto& gpu : gpus_) {
    gpu->Freezes().ApplyAll(now);  // first, so that none runs that must not
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) channels_.Freezer().ThawLeftOver(gpu->Index(), process->pid);
    }
    gpu->Time().Choose(now);
  }
}

// Tells the watchdog that this loop goes round.
void Daemon::Beat(Nanos now) {
  channels_.Tick();
  if (suspended_files_) suspended_files_->RemoveEnded();
  spaces_->Tick();
  sm_orders_.Give(table_->All(), now);
  error_trace_.SaveIfWrong(now);
  beat_timer_.Arm(now + kSecond);
}

void Daemon::NoteFault(const GpuFault& fault, Nanos now) {
  if (fault.gpu < gpus_.size()) {
    gpus_[fault.gpu]->Health().Note(fault, now);
    if (setup_.config.drain_on_xid && !fault.ByProgram() && !gpus_[fault.gpu]->Health().Draining())
      moves_->drains.Begin(fault.gpu, fault.Text(), now);
  }
  spaces_->Tick();  // it may be a space's program
}

Result<std::vector<ConfigChange>> Daemon::Reload(const Config& read, Nanos now) {
  auto merged = MergeLive(setup_.config, read);
  if (!merged) return std::unexpected(merged.error());
  std::vector<ConfigChange> changes = Difference(setup_.config, read);
  setup_.config = std::move(*merged);
  const auto any = [&changes](std::string_view section) {
    return std::ranges::any_of(changes,
                               [&](const ConfigChange& each) { return each.live && each.key.starts_with(section); });
  };
  for (const auto& gpu : gpus_) {
    if (any("sched.") || any("channels.") || any("priority.")) gpu->Time().Restart(now);
    if ((any("turn.") || any("swap.on_host")) && gpu->Swaps()) gpu->Residency().Configure(setup_.config.residency);
  }
  if (any("turn.")) gangs_.Configure();
  if (any("rebalance.")) moves_->balancer.Configure(setup_.config.rebalance_load, now);
  if (any("suspend.idle")) idle_suspension_->Configure(setup_.config, now);
  if (auto errors = DeclareVGpus(now); !errors.empty()) return std::unexpected(errors.front());
  return changes;
}

std::vector<Error> Daemon::DeclareVGpus(Nanos now) {
  // The file is the node's: its vGPUs are made by the daemon that serves the node.
  if (setup_.exit_when_idle) return {};
  auto errors = declarations_->Apply(setup_.config.vgpus, now);
  for (const Error& error : errors) log::Error("{}", error.Text());
  return errors;
}

Result<void> Daemon::FindGpus() {
  auto found = driver_->List();
  if (!found) return std::unexpected(found.error());
  if (setup_.exit_when_idle) LeaveSwapFile(setup_.config);
  const std::uint64_t free = FreeRam();
  for (GpuInfo& info : *found) {
    auto reserve = ReserveFor(info, driver_->IsSoft(), setup_.config.memory_reserve);
    if (!reserve) return std::unexpected(reserve.error());
    const auto index = static_cast<std::uint32_t>(gpus_.size());
    log::Info("GPU {}: {}, {}, {}", index, info.name, FormatUuid(info.uuid), FormatSize(info.memory_total));
    auto swap = MakeSwapSetup(
        setup_.config, {.run_dir = setup_.run_dir, .soft = driver_->IsSoft(), .free_ram = free, .gpus = found->size()},
        info, index);
    if (!swap) return std::unexpected(swap.error());
    gpus_.push_back(std::make_unique<GpuServer>(loop_, index, std::move(info), *reserve, setup_.config, channels_,
                                                std::move(*swap), HooksOfGpu()));
    peers_.Add(*gpus_.back());
    gangs_.Add(*gpus_.back());
  }
  return {};
}

GpuServer::Hooks Daemon::HooksOfGpu() {
  return {
      .activity = [this] { meter_->Soon(); },
      .contexts_changed = [this] { meter_->ContextsChanged(); },
      .joining = [this](Process& process, Nanos now) { suspensions_->Joining(process, now); },
      .joined =
          [this](Process& process, Nanos now) {
            if (process.who.guest) return;
            guests_->Attached(process, now);
            files_.OfBootChanged();
          },
      .begins =
          [this](const Process& process) {
            if (!process.vgpu->spec.space.empty()) client_files_.Hold(process.pid);
          },
      .left =
          [this](const Process& process) { client_files_.Release(process.pid, SpaceStands(*process.vgpu, channels_)); },
      .members_changed =
          [this] {
            gangs_.MembersChanged();
            sm_orders_.Give(table_->All(), MonotonicNow());
          },
      .looked = [this] { gangs_.MarkTimeDue(); },
      .memory_looked = [this] { RestMovers(gpus_, left_memory_, moves_ && moves_->migrations.Any()); }};
}

void Daemon::RestoreVGpus(Nanos now) {
  SavedState of_boot = LoadStateOrSetAside(setup_.run_dir + "/state.json");
  const SavedState lasting = LoadStateOrSetAside(StateDirOf(setup_) + "/vgpus.json");
  saved_processes_ = std::move(of_boot.processes);
  const auto restore = [&](const SavedVGpu& saved) {
    auto restored = table_->Restore(saved, now);
    if (restored || restored.error().code == ESRCH) return;
    log::Warn("vGPU {} is absent: {}", saved.spec.name, restored.error().Text());
  };
  moves_->drains.Restore(lasting.draining);
  RestoreSpaces(lasting.spaces, *spaces_, gpus_);
  std::ranges::for_each(lasting.vgpus, restore);
  std::ranges::for_each(of_boot.vgpus, restore);
  for (const SavedProgram& program : of_boot.programs) {
    for (const auto& gpu : gpus_) {
      if (gpu->Info().uuid == program.gpu) gpu->Survivors().Expect(program.name, now);
    }
  }
}

std::string Daemon::State() const {
  SavedState state{.vgpus = table_->Saved(), .processes = saved_processes_};
  std::erase_if(state.vgpus, [](const SavedVGpu& saved) { return !saved.spec.ephemeral; });
  for (SavedProcess& process : guests_->Saved()) state.processes.push_back(std::move(process));
  for (const auto& gpu : gpus_) {
    for (const ProcessName& name : ProgramsOf(*gpu)) state.programs.push_back({name, gpu->Info().uuid});
  }
  return FormatState(state);
}

std::string Daemon::LastingVGpus() const {
  SavedState state{.vgpus = table_->Saved(), .processes = {}};
  std::erase_if(state.vgpus, [](const SavedVGpu& saved) { return saved.spec.ephemeral; });
  state.spaces = LastingSpaces(*spaces_, gpus_);
  state.draining = moves_->drains.Marked();
  return FormatState(state);
}

void Daemon::VGpusChanged() {
  vgpu_changes_.fetch_add(1, std::memory_order_release);
  gangs_.MembersChanged();
  sm_orders_.Give(table_->All(), MonotonicNow());
  if (ending_ || restoring_) return;
  files_.Changed();
  StayAwhile(MonotonicNow());
}

void Daemon::StayAwhile(Nanos now) {
  if (!setup_.exit_when_idle) return;
  linger_until_ = now + kLinger;
  linger_timer_.Arm(linger_until_);
}

void Daemon::EndIfIdle(Nanos now) {
  if (clients_->Sessions() > 0 || table_->AnyLivingOwner()) return;  // their end calls StayAwhile
  const bool adopted = std::ranges::any_of(guests_->Saved(), [](const auto& each) { return !each.vgpu.empty(); });
  if (kernel_gate_->Any() || adopted || spaces_->Any()) return StayAwhile(now);
  if (now < linger_until_) return linger_timer_.Arm(linger_until_);
  log::Info("no clients left; exiting");
  loop_.Stop();
}

}  // namespace tessera::server
