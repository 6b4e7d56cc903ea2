#include "mover/mover.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <set>

#include "base/fault.h"
#include "base/seqpacket.h"

namespace tessera::mover {

using wire::kChunkBytes;
using wire::MoverMessage;
using wire::MoverType;

namespace {

// Time between two looks for the ends of copies: a batch takes 5 ms.
constexpr Nanos kLookForCopies = 50 * kMicrosecond;
constexpr Nanos kBetweenReports = 100 * kMillisecond;
constexpr Nanos kBetweenTries = kSecond;
constexpr Nanos kBetweenLooks = kSecond;  // at the machine's memory
constexpr Nanos kMostRetiring = 5 * kSecond;
constexpr std::uint64_t kMostFiling = 4;  // chunks on their way to the file: enough that the disk always has work

MoverMessage FileIs(const Workplace& place) {
  if (place.file == nullptr) return {.type = MoverType::kFileIs};
  return {.type = MoverType::kFileIs,
          .error = place.file_full ? place.file_full->code : 0,
          .bytes = place.file->total() * kChunkBytes,
          .other = place.file->used() * kChunkBytes};
}

bool AnyLoads(const std::map<std::uint64_t, std::shared_ptr<Program>>& programs) {
  return std::ranges::any_of(programs, [](const auto& each) { return each.second->Loads(); });
}

bool Differ(const MoverMessage& a, const MoverMessage& b) {
  return a.error != b.error || a.bytes != b.bytes || a.other != b.other;
}

}  // namespace

Mover::Mover(Gpu& gpu, UniqueFd daemon, std::function<MachineMemory()> machine, KeyTable slots,
             std::optional<SwapFile> file, Nanos patience)
    : gpu_(gpu),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      daemon_(epoll_.Get(), std::move(daemon)),
      slots_(std::move(slots)),
      pool_(slots_),
      claims_(slots_, pool_),
      growth_(pool_, slots_.size()),
      copier_(gpu, pool_),
      file_(std::move(file)),
      place_{.gpu = gpu_,
             .pool = pool_,
             .claims = claims_,
             .copier = copier_,
             .epoll = epoll_.Get(),
             .tell =
                 [this](const auto& message) {
                   if (!daemon_.Send(BytesOf(message))) daemon_gone_ = true;
                 },
             .give = [this](const auto& message, int fd) { return Give(message, fd); },
             .patience = patience,
             .now = MonotonicNow()},
      lent_(gpu, pool_, place_.tell),
      machine_(std::move(machine)),
      disk_(std::make_unique<Disk>()),
      growers_{{{gpu, machine_}, {gpu, machine_, Grower::Priority::kLow}}} {
  for (const Grower& grower : growers_) {
    epoll_event event = {.events = EPOLLIN, .data = {.fd = grower.fd()}};
    epoll_ctl(epoll_.Get(), EPOLL_CTL_ADD, grower.fd(), &event);
  }
  place_.file = file_ ? &*file_ : nullptr;
  place_.disk = disk_.get();
  epoll_event event = {.events = EPOLLIN, .data = {.fd = disk_->fd()}};
  epoll_ctl(epoll_.Get(), EPOLL_CTL_ADD, disk_->fd(), &event);
}

Result<void> Mover::Run() {
  place_.tell({.type = MoverType::kReady});
  Result<bool> goes_on = true;
  while (goes_on && *goes_on) goes_on = RunOnce(kNever);
  if (!goes_on) return std::unexpected(goes_on.error());
  return {};
}

Result<bool> Mover::RunOnce(Nanos most) {
  Wait(most);
  place_.now = MonotonicNow();
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.Get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) OnEvent(events[i].data.fd, events[i].events);
  if (const auto finished = FinishCopies(); !finished) return std::unexpected(finished.error());
  for (const auto& [id, program] : programs_) program->GoOn();
  lent_.GoOn([this](pid_t owner) {
    return std::ranges::any_of(
        programs_, [owner](const auto& each) { return each.second->pid() == owner && each.second->Relocates(); });
  });
  if (!place_.closing.empty() && !AnyLoads(programs_)) place_.closing.pop_back();
  GrowOrStarve();
  Report();
  if (place_.broken) return std::unexpected(*place_.broken);
  return !daemon_gone_;
}

// By ppoll, since epoll_wait knows milliseconds only and epoll_pwait2 is not on all kernels.
void Mover::Wait(Nanos most) {
  const Nanos now = MonotonicNow();
  if (copier_.busy()) most = std::min(most, kLookForCopies);
  if (lent_.Maps() || (!place_.closing.empty() && !AnyLoads(programs_))) most = 0;
  if (report_due_) most = std::min(most, report_at_ - now);
  if (resume_at_ != kNever) most = std::min(most, resume_at_ - now);
  if (prepare_at_ != kNever) most = std::min(most, prepare_at_ - now);
  most = std::min(most, look_at_machine_ - now);
  const bool asks = std::ranges::any_of(programs_, [](const auto& each) { return each.second->IsAsked(); });
  if (asks) most = std::min(most, place_.patience / 10);  // to see that it is late
  most = std::max<Nanos>(most, 0);
  const timespec time = {.tv_sec = most / kSecond, .tv_nsec = most % kSecond};
  pollfd poll = {.fd = epoll_.Get(), .events = POLLIN};
  ppoll(&poll, 1, &time, nullptr);
}

std::shared_ptr<Program> Mover::ByFd(int fd) const {
  const auto found = std::ranges::find_if(programs_, [&](const auto& each) { return each.second->fd() == fd; });
  return found == programs_.end() ? nullptr : found->second;
}

void Mover::OnEvent(int fd, std::uint32_t events) {
  for (Grower& grower : growers_) {
    if (fd == grower.fd()) return OnGrown(grower);
  }
  if (disk_ && fd == disk_->fd()) return disk_->Finish();
  if (fd == daemon_.fd()) {
    if ((events & EPOLLOUT) && !daemon_.Flush()) daemon_gone_ = true;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) OnDaemon();
    return;
  }
  if (const auto program = ByFd(fd)) program->OnEvent(events);
}

void Mover::OnDaemon() {
  std::byte buffer[sizeof(MoverMessage)];
  UniqueFd fd;
  const ssize_t length = ReceivePacket(daemon_.fd(), buffer, &fd);
  if (length < 0 && errno == EAGAIN) return;
  const auto message = wire::ReadMover(std::span(buffer, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
  if (!message) {
    daemon_gone_ = true;
    return;
  }
  OnMessage(*message, std::move(fd));
}

void Mover::OnMessage(const MoverMessage& message, UniqueFd fd) {
  if (message.type == MoverType::kPool) {
    growth_.Aim(message.bytes / kChunkBytes, message.other / kChunkBytes);
    claims_.Bound(place_.now + kClaimTime);
    stopped_because_ = 0;
    report_due_ = true;
    return;
  }
  if (message.type == MoverType::kPrepare) return growth_.AimAhead(message.bytes / kChunkBytes);
  if (message.type == MoverType::kRest) return growth_.Rest(message.bytes != 0);
  if (message.type == MoverType::kSlot) return OnSlot(message.bytes, std::move(fd));
  if (message.type == MoverType::kLend) return lent_.OnLend(static_cast<pid_t>(message.bytes));
  if (message.type == MoverType::kSlotFor) return lent_.OnSlotFor(message, std::move(fd));
  if (message.type == MoverType::kLetGo) return claims_.LetGo(message.bytes);
  if (message.type == MoverType::kShow) return OnShow(message);
  if (message.type == MoverType::kReach) return lent_.OnReach(message, std::move(fd));
  if (message.type == MoverType::kReachOver) return lent_.OnReachOver(static_cast<pid_t>(message.program));
  if (message.type == MoverType::kSlotKept) return OnKept(message);
  if (message.type == MoverType::kFileOf) return OnFileOf(message.program, std::move(fd));
  if (message.type == MoverType::kProgram) return OnProgram(message, std::move(fd));
  if (message.type == MoverType::kGone) return OnGone(message);
  const auto found = programs_.find(message.program);
  if (found == programs_.end()) return;
  if (message.type == MoverType::kEvict) growth_.Resume();
  const auto program = found->second;
  program->Do(message, std::move(fd));
}

// Its head is read here and now, a few KiB: the program's first words are about what is in it.
void Mover::OnFileOf(std::uint64_t program, UniqueFd fd) {
  auto file = SuspendedFile::Open(std::move(fd));
  if (file) files_of_[program] = std::make_shared<SuspendedFile>(std::move(*file));
  if (!file && file.error().code != ENODATA)
    std::fprintf(stderr, "tessera-mover: program %llu: %s\n", static_cast<unsigned long long>(program),
                 file.error().Text().c_str());
}

void Mover::OnProgram(const MoverMessage& message, UniqueFd fd) {
  const auto file = files_of_.extract(message.program);
  if (programs_.contains(message.program) || !fd) return;
  programs_.emplace(message.program,
                    std::make_shared<Program>(place_, message.program, static_cast<pid_t>(message.bytes), message.other,
                                              std::move(fd), file ? file.mapped() : nullptr));
  domains_[message.program] = message.other;
}

void Mover::OnShow(const MoverMessage& message) {
  const auto is = [&](const auto& each) { return each.second->pid() == static_cast<pid_t>(message.program); };
  const auto found = std::ranges::find_if(programs_, is);
  if (found != programs_.end()) return found->second->Show(message.bytes / kChunkBytes);
  if (message.bytes > 0) place_.tell({.type = MoverType::kShownAll, .error = EPIPE, .program = message.program});
}

void Mover::OnGone(const MoverMessage& message) {
  if (const auto program = programs_.extract(message.program)) program.mapped()->Gone();
  domains_.erase(message.program);
}

Result<void> Mover::FinishCopies() {
  const auto finished = copier_.Finished();
  if (!finished) return std::unexpected(finished.error());
  for (const auto& batch : *finished) {
    const auto program = batch->program;
    program->OnCopied(batch);
  }
  return {};
}

// ---- after the daemon ----

void Mover::Retire() {
  place_.now = MonotonicNow();
  for (const auto& [id, program] : std::exchange(programs_, {})) program->Gone();
  domains_.clear();
  files_of_.clear();
  disk_.reset();  // ends the chunk that it is at; chunks that wait for it stay where they are
  for (const Nanos end = MonotonicNow() + kMostRetiring; copier_.busy();) {
    if (MonotonicNow() >= end || !FinishCopies()) return;
    poll(nullptr, 0, 1);
  }
}

// ---- the pool ----

void Mover::OnSlot(std::uint64_t number, UniqueFd fd) {
  const auto slot = pool_.Earlier(number);
  HostMemory memory = {.fd = std::move(fd), .transit = slot && pool_.EntryOf(*slot).Has(KeyTable::Entry::kTransit)};
  const auto reached = slot && memory.fd ? gpu_.Reach(memory) : Fail(ENOENT, "the table does not know it");
  if (slot && reached) {
    pool_.Restore(*slot, std::move(memory));
    PassFault("mover.slot.restored");
  } else {
    std::fprintf(stderr, "tessera-mover: a slot of an earlier mover cannot be used: %s\n",
                 reached.error().Text().c_str());
    place_.tell({.type = MoverType::kSlotGone, .bytes = number});
  }
  place_.tell({.type = MoverType::kSlotTaken, .bytes = number});
}

// Nothing may lie in a slot that only this mover has. If too many descriptors are on their way between processes it is
// used all the same, and no later mover has it.
void Mover::AddSlot(HostMemory memory) {
  if (pool_.Places() == 0) {  // a slot that was lent has taken it meanwhile
    gpu_.FreeHost(std::move(memory));
    return growth_.Ended();
  }
  const int fd = memory.fd.Get();
  const Slot slot = pool_.Add(std::move(memory));
  const MoverMessage message = {.type = MoverType::kSlotMade, .bytes = pool_.EntryOf(slot).memory};
  if (!Give(message, fd)) OnKept(message);
  PassFault("mover.slot.told");
}

bool Mover::Give(const MoverMessage& message, int fd) {
  const bool given = daemon_.Send(BytesOf(message), {&fd, 1});
  daemon_gone_ = daemon_gone_ || (!given && errno != ETOOMANYREFS);
  return given;
}

// It was made, or a program is to leave something in it.
void Mover::OnKept(const MoverMessage& message) {
  if (pool_.Admit(message.bytes)) growth_.Ended();
  for (const auto& [id, program] : programs_) program->OnKept(message.bytes, message.error);
}

void Mover::OnGrown(Grower& grower) {
  auto outcome = grower.Take();
  if (!outcome || outcome->kind != PoolGrowth::Job::Kind::kMake) return;
  // Who prepares rests as long as it works: others wait for the same locks of the driver.
  if (&grower == &growers_.back()) prepare_at_ = place_.now + outcome->took;
  if (outcome->made) {
    AddSlot(std::move(*outcome->made));
    stopped_because_ = 0;
    return;
  }
  growth_.Ended();
  growth_.Stop();
  stopped_because_ = outcome->made.error().code;
  resume_at_ = place_.now + kBetweenTries;
}

Demand Mover::DemandOfAll() const {
  Demand demand;
  for (const auto& [id, program] : programs_) program->AddDemand(demand);
  if (!demand.empty()) demand.begin()->second += place_.Reserve();
  return demand;
}

void Mover::GrowOrStarve() {
  if (resume_at_ != kNever && place_.now >= resume_at_) {
    resume_at_ = kNever;
    growth_.Resume();
  }
  const Demand demand = DemandOfAll();
  for (Grower& grower : growers_) {
    if (!grower.busy()) Start(grower, growth_.Next(demand, AnyLoads(programs_)));
    if (!grower.busy()) Start(grower, Ahead(grower, demand));
  }
  if (std::ranges::any_of(growers_, &Grower::busy) || growth_.Makes() || FileCold(demand)) return;
  for (const auto& [id, program] : programs_) program->Starve();
}

void Mover::Start(Grower& grower, PoolGrowth::Job job) {
  if (job.kind == PoolGrowth::Job::Kind::kNothing) return;
  if (job.kind == PoolGrowth::Job::Kind::kFree) {
    place_.tell({.type = MoverType::kSlotGone, .bytes = job.removed.number});
    PassFault("mover.slot.gone");
  }
  grower.Start(std::move(job));
}

// What this grower may do ahead of need: nothing while a program waits for anything, or something is moved.
PoolGrowth::Job Mover::Ahead(const Grower& grower, const Demand& demand) {
  if (&grower != &growers_.back() || !demand.empty() || copier_.busy()) return {};
  if (std::ranges::any_of(programs_, [](const auto& each) { return each.second->IsAsked(); })) return {};
  if (prepare_at_ != kNever && place_.now < prepare_at_) return {};
  prepare_at_ = kNever;
  std::set<Domain> present;
  for (const auto& [id, domain] : domains_) present.insert(domain);
  return growth_.Prepare(present);
}

// Sends chunks of programs that do not run to the file, those that were stored first, until as many slots come free as
// are missing. False: no chunk is on its way to the file, nor to a slot from which it could go on there.
bool Mover::FileCold(const Demand& demand) {
  if (!file_) return false;
  std::uint64_t under_way = 0;
  for (const auto& [id, program] : programs_) under_way += program->Filing();
  for (const std::uint64_t missing = std::min(growth_.Missing(demand), kMostFiling);
       under_way < missing && !place_.file_full; ++under_way) {
    Program* coldest = nullptr;
    for (const auto& [id, program] : programs_) {
      const auto oldest = program->Oldest();
      if (oldest && (coldest == nullptr || *oldest < *coldest->Oldest())) coldest = program.get();
    }
    if (coldest == nullptr || !coldest->FileOldest()) break;
  }
  const bool comes = std::ranges::any_of(programs_, [](const auto& each) { return each.second->Storing(); });
  return under_way > 0 || (comes && !place_.file_full && file_->used() < file_->total());
}

void Mover::ReportMachine() {
  if (place_.now < look_at_machine_) return;
  look_at_machine_ = place_.now + kBetweenLooks;
  const MachineMemory machine = machine_();
  const MoverMessage is = {.type = MoverType::kMachineIs,
                           .bytes = machine.MostFor(pool_.Count().total * kChunkBytes) / kChunkBytes * kChunkBytes,
                           .other = machine.pressure};
  if (is.bytes == reported_machine_.bytes && is.other == reported_machine_.other &&
      reported_machine_.type == MoverType::kMachineIs)
    return;
  place_.tell(is);
  reported_machine_ = is;
}

void Mover::Report() {
  ReportMachine();
  const Nanos now = place_.now;
  if (now >= report_at_) claims_.Sweep(now);
  const Pool::Figures figures = pool_.Count();
  const MoverMessage pool = {.type = MoverType::kPoolIs,
                             .error = stopped_because_,
                             .bytes = figures.total * kChunkBytes,
                             .other = figures.used * kChunkBytes};
  // Places of programs that have ended come free some time after the daemon says that the programs are gone.
  if (file_ && now >= report_at_ && file_->Sweep()) report_due_ = true;
  const MoverMessage file = FileIs(place_);
  // While programs left something it is looked again and again whether they have ended.
  const bool left = claims_.any() || (file_ && file_->left() > 0);
  report_due_ = report_due_ || left || Differ(pool, reported_pool_) || Differ(file, reported_file_);
  if (!report_due_ || now < report_at_) return;
  place_.tell(pool);
  if (file_) place_.tell(file);
  reported_pool_ = pool;
  reported_file_ = file;
  report_due_ = left;
  report_at_ = now + kBetweenReports;
}

}  // namespace tessera::mover
