#include "server/daemon/daemon.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/install/mps_program.h"
#include "base/size.h"
#include "server/daemon/space_setup.h"
#include "server/daemon/swap_setup.h"
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

const std::string& StateDirOf(const Daemon::Setup& setup) {
  return setup.state_dir.empty() ? setup.run_dir : setup.state_dir;
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
      bounds_(setup_.user_bounds),
      linger_timer_(loop, [this] { EndIfIdle(MonotonicNow()); }),
      beat_timer_(loop, [this] { Beat(MonotonicNow()); }),
      testing_(loop),
      error_trace_(loop, setup_.run_dir),
      saver_(loop, setup_.run_dir + "/state.json", [this] { return State(); }),
      lasting_saver_(loop, StateDirOf(setup_) + "/vgpus.json", [this] { return LastingVGpus(); }) {}

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
  daemon->quotas_ = std::make_unique<QuotaKeeper>(daemon->setup_.config.quotas, *daemon->table_, daemon->gpus_);
  daemon->guests_ = std::make_unique<GuestServer>(loop, *daemon->table_, daemon->gpus_, daemon->channels_,
                                                  daemon->bounds_, [self = daemon.get()] { self->saver_.Changed(); });
  daemon->kernel_gate_ = std::make_unique<KernelGate>(
      loop, daemon->authority_, *daemon->table_, daemon->gpus_, daemon->channels_, *daemon->guests_, daemon->bounds_,
      KernelGate::Setup{.holder_path = daemon->setup_.run_dir + "/gates.sock",
                        .grace = daemon->setup_.config.client_grace,
                        .soft = daemon->driver_->IsSoft()});
  daemon->channels_.OnChange([self = daemon.get()](pid_t pid, Nanos now) {
    for (const auto& gpu : self->gpus_) gpu->Time().ChannelsChanged(pid, now);
    if (self->guests_ && !self->ending_ && self->guests_->Keeps(pid)) self->saver_.Changed();
  });
  // The file must not be overwritten by the half of it that is restored already.
  daemon->restoring_ = true;
  daemon->declarations_ = std::make_unique<Declarations>(*daemon->table_);
  daemon->RestoreVGpus(MonotonicNow());
  (void)daemon->DeclareVGpus(MonotonicNow());
  daemon->restoring_ = false;
  daemon->spaces_->EndLeftOvers();
  if (!daemon->table_->Saved().empty() || daemon->spaces_->Any()) daemon->SaveVGpus();
  if (daemon->setup_.watch) daemon->guests_->Watch().Start();
  daemon->kernel_gate_->TakeOver(MonotonicNow());
  daemon->TestControl();
  daemon->faults_ = std::make_unique<FaultWatch>(loop, *daemon->driver_, [self = daemon.get()](const GpuFault& fault) {
    if (fault.gpu < self->gpus_.size()) self->gpus_[fault.gpu]->Health().Note(fault, MonotonicNow());
    self->spaces_->Tick();  // it may be a space's program
  });
  for (const auto& gpu : daemon->gpus_) gpu->Time().Choose(MonotonicNow());
  daemon->Beat(MonotonicNow());
  auto clients = ClientServer::Start(loop, std::move(daemon->setup_.client_listener),
                                     {.authority = daemon->authority_,
                                      .quotas = *daemon->quotas_,
                                      .table = *daemon->table_,
                                      .gpus = daemon->gpus_,
                                      .config = daemon->setup_.config,
                                      .channels = daemon->channels_,
                                      .guests = *daemon->guests_,
                                      .kernel_gate = *daemon->kernel_gate_,
                                      .bounds = daemon->bounds_,
                                      .spaces = *daemon->spaces_});
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
  saver_.Finish();
  lasting_saver_.Finish();
  channels_.Freezer().LetGo();
  container_gate_.reset();
  requests_.reset();
  clients_.reset();  // before the timers that their leaving would set
  kernel_gate_.reset();
  guests_.reset();
}

// Channel control is used only after it was seen to work on this driver; until then, and otherwise, gates do it.
void Daemon::TestControl() {
  if (!channels_.Availability().WhyNone().empty() || driver_->IsSoft()) return ControlTested({}, MonotonicNow());
  std::vector<std::string> uuids;
  for (const auto& gpu : gpus_) uuids.push_back(FormatUuid(gpu->Info().uuid));
  channels_.Availability().BeginTest();
  testing_.Start(
      [this, uuids] {
        tests_.clear();
        for (const std::string& uuid : uuids) tests_.push_back(channel::RunSelfTest(uuid));
      },
      [this] { ControlTested(tests_, MonotonicNow()); });
}

void Daemon::ControlTested(const std::vector<Result<channel::SelfTest>>& tests, Nanos now) {
  std::map<std::uint32_t, std::string> failed;
  for (std::uint32_t gpu = 0; gpu < tests.size(); ++gpu) {
    const auto& test = tests[gpu];
    if (test) {
      control_test_ = fmt::format("works with driver {}: freeze {} us, thaw {} us", test->driver,
                                  test->freeze / kMicrosecond, test->thaw / kMicrosecond);
      continue;
    }
    log::Warn("GPU {}: channels are not steered: {}; time is shared by gates", gpu, test.error().Text());
    failed[gpu] = test.error().Text();
  }
  if (driver_->IsSoft()) control_test_ = "the soft GPU needs no test";
  channels_.Availability().EndTest(std::move(failed));
  RestoreProcesses(now);
  for (const auto& gpu : gpus_) {
    gpu->Freezes().ApplyAll(now);  // first, so that none runs that must not
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) channels_.Freezer().ThawLeftOver(gpu->Index(), process->pid);
    }
    gpu->Time().Choose(now);
  }
}

void Daemon::RestoreProcesses(Nanos now) {
  guests_->Restore(saved_processes_, now);
  saved_processes_.clear();
}

// Tells the watchdog that this loop goes round.
void Daemon::Beat(Nanos now) {
  channels_.Tick();
  spaces_->Tick();
  sm_orders_.Give(table_->All(), now);
  error_trace_.SaveIfWrong(now);
  beat_timer_.Arm(now + kSecond);
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
  // The configuration is the node's as well: its file is for the daemon that serves the node.
  if (setup_.exit_when_idle && !setup_.config.swap_file.empty()) {
    log::Warn("swap.file is not used by a daemon that ends with its programs");
    setup_.config.swap_file.clear();
  }
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
                                                std::move(*swap)));
    peers_.Add(*gpus_.back());
    gangs_.Add(*gpus_.back());
    gpus_.back()->SetHooks({.activity = [this] { meter_->Soon(); },
                            .contexts_changed = [this] { meter_->ContextsChanged(); },
                            .joined =
                                [this](Process& process, Nanos now) {
                                  if (process.who.guest) return;
                                  guests_->Attached(process, now);
                                  if (gpus_[process.vgpu->gpu]->Swaps()) saver_.Changed();
                                },
                            .begins =
                                [this](const Process& process) {
                                  if (!process.vgpu->spec.space.empty()) client_files_.Hold(process.pid);
                                },
                            .left =
                                [this](const Process& process) {
                                  client_files_.Release(process.pid, SpaceStands(*process.vgpu, channels_));
                                },
                            .members_changed =
                                [this] {
                                  gangs_.MembersChanged();
                                  sm_orders_.Give(table_->All(), MonotonicNow());
                                },
                            .looked = [this] { gangs_.MarkTimeDue(); }});
  }
  return {};
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
  RestoreSpaces(lasting.spaces, *spaces_, gpus_);
  std::ranges::for_each(lasting.vgpus, restore);
  std::ranges::for_each(of_boot.vgpus, restore);
  for (const SavedProgram& program : of_boot.programs) {
    for (const auto& gpu : gpus_) {
      if (gpu->Info().uuid == program.gpu && gpu->Swaps()) gpu->Residency().Expect(program.name, now);
    }
  }
}

std::string Daemon::State() const {
  SavedState state{.vgpus = table_->Saved(), .processes = saved_processes_};
  std::erase_if(state.vgpus, [](const SavedVGpu& saved) { return !saved.spec.ephemeral; });
  for (SavedProcess& process : guests_->Saved()) state.processes.push_back(std::move(process));
  for (const auto& gpu : gpus_) {
    if (!gpu->Swaps()) continue;
    for (const ProcessName& name : gpu->Residency().Programs()) state.programs.push_back({name, gpu->Info().uuid});
  }
  return FormatState(state);
}

std::string Daemon::LastingVGpus() const {
  SavedState state{.vgpus = table_->Saved(), .processes = {}};
  std::erase_if(state.vgpus, [](const SavedVGpu& saved) { return saved.spec.ephemeral; });
  state.spaces = LastingSpaces(*spaces_, gpus_);
  return FormatState(state);
}

void Daemon::VGpusChanged() {
  vgpu_changes_.fetch_add(1, std::memory_order_release);
  gangs_.MembersChanged();
  sm_orders_.Give(table_->All(), MonotonicNow());
  if (ending_ || restoring_) return;
  SaveVGpus();
  StayAwhile(MonotonicNow());
}

// A vGPU of tessera run changes nothing in the file that lasts, which may be on a slow disk.
void Daemon::SaveVGpus() {
  saver_.Changed();
  std::string lasting = LastingVGpus();
  if (lasting == lasting_) return;
  lasting_ = std::move(lasting);
  lasting_saver_.Changed();
}

void Daemon::AwaitSaved() {
  saver_.Await();
  lasting_saver_.Await();
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
