#include "server/swap/mover_link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>
#include <vector>

#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr Nanos kRestartMover = kSecond;
// So many movers that cannot start are no accident.
constexpr int kGiveUp = 3;
// How often it is looked whether a mover that is gone has ended.
constexpr Nanos kEndsSoon = 10 * kMillisecond;
// A program that breaks its lines must not keep the mover from the work of others.
constexpr Nanos kBetweenLines = kSecond / 2;

// Programs of one domain may get each other's pieces of the pool: they could read each other's memory anyway, because
// they are of one user in one PID namespace.
std::uint64_t DomainOf(const Process& process) {
  struct stat status{};
  const std::string path = fmt::format("/proc/{}/ns/pid", process.pid);
  if (stat(path.c_str(), &status) != 0) return (std::uint64_t{1} << 63) | static_cast<std::uint64_t>(process.pid);
  return (std::uint64_t{process.who.uid} << 32) ^ status.st_ino;
}

}  // namespace

MoverLink::MoverLink(std::uint32_t gpu, const sched::PoolResidence& pool, Host host)
    : gpu_(gpu), host_(std::move(host)), pool_(pool) {}

// ---- the process ----

void MoverLink::Ensure(Nanos now) {
  if (mover_ || pool_.most == 0 || now < next_start_) return;
  next_start_ = now + kRestartMover;
  auto started = host_.start([this](const wire::MoverMessage* message) { OnMessage(message, MonotonicNow()); });
  if (started) {
    mover_ = std::move(*started);
    return;
  }
  ++failed_starts_;
  why_none_ = started.error().Text();
  log::Error("GPU {}: memory cannot be moved: {}", gpu_, why_none_);
}

void MoverLink::Reap() {
  if (!gone_ || !mover_->Ended()) return;
  mover_.reset();
  gone_ = false;
}

Nanos MoverLink::NextLook(bool needed, Nanos now) const {
  if (gone_) return now + kEndsSoon;
  return needed && !mover_ && pool_.most > 0 ? next_start_ : kNever;
}

bool MoverLink::Hopeless() const { return failed_starts_ >= kGiveUp; }

void MoverLink::OnMessage(const wire::MoverMessage* message, Nanos now) {
  using enum wire::MoverType;
  if (!message) return OnGone();
  switch (message->type) {
    case kFailed:
      why_none_.assign(message->text, strnlen(message->text, sizeof message->text));
      return;
    case kReady:
      return OnReady();
    case kPoolIs:
      if (message->bytes > pool_.size) pool_.grew_at = now;
      pool_.size = message->bytes;
      pool_.used = message->other;
      return;
    case kMachineIs:
      pool_.machine = message->bytes;
      pool_.pressure = static_cast<std::uint32_t>(message->other);
      return host_.machine();
    case kSlotGone:
      return host_.machine();
    case kFileIs:
      file_.used = message->other;
      if (std::exchange(file_.error, message->error) != message->error && message->error != 0)
        log::Error("GPU {}: nothing more is written to the swap file: {}", gpu_, strerror(message->error));
      return;
    case kMoved:
    case kEvicted:
    case kLoaded:
    case kSettled:
    case kParked:
    case kSaved:
    case kUnsaved:
    case kSaveLeft:
    case kNoHostMemory:
      return host_.report(*message);
    case kLent:
    case kSlotTaken:
    case kSlotLeft:
    case kReached:
    case kShownAll:
    case kClaimed:
      return TellEars(message);
    default:
      return;
  }
}

void MoverLink::OnGone() {
  if (why_none_.empty()) why_none_ = "the mover ended";
  log::Error("GPU {}: {}; another one is started", gpu_, why_none_);
  if (!std::exchange(ready_, false)) ++failed_starts_;
  gone_ = true;
  pool_.size = pool_.used = file_.used = 0;
  pool_.machine.reset();
  pool_.pressure = 0;
  host_.gone();
  TellEars(nullptr);
}

// First it hears what its pool is to hold: it has the slots of its predecessor, of which programs show theirs.
void MoverLink::OnReady() {
  ready_ = true;
  failed_starts_ = 0;
  why_none_.clear();
  if (rests_) mover_->Send({.type = wire::MoverType::kRest, .bytes = 1});
  SendPool();
  host_.ready();
  log::Info("GPU {}: memory can be moved", gpu_);
}

// ---- lines ----

UniqueFd MoverLink::MakeLine(Process& process, Nanos now) {
  Residence& residence = process.residence;
  if (now < residence.line.next_at) return {};
  residence.line.next_at = now + kBetweenLines;
  Dismiss(process);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  residence.line.number = next_number_++;
  residence.line.end.Reset(ends[1]);
  residence.ChangeLine();
  process.page->guard.released = 0;  // it has no other line now
  Introduce(process);
  return UniqueFd(ends[0]);
}

void MoverLink::Introduce(Process& process) {
  MoverLine& line = process.residence.line;
  if (!ready_ || !line.end) return;
  if (const UniqueFd file = host_.file_of(process)) {
    process.residence.own_file.in = true;
    mover_->Send({.type = wire::MoverType::kFileOf, .program = line.number}, file.Get());
  }
  mover_->Send({.type = wire::MoverType::kProgram,
                .program = line.number,
                .bytes = static_cast<std::uint64_t>(process.pid),
                .other = DomainOf(process)},
               line.end.Get());
  line.end.Reset();
}

void MoverLink::Dismiss(const Process& process) {
  const std::uint64_t number = process.residence.line.number;
  if (ready_ && number != 0) mover_->Send({.type = wire::MoverType::kGone, .program = number});
}

// ---- orders ----

bool MoverLink::Order(const Process& process, wire::MoverType order, std::uint64_t bytes, std::uint64_t holes) {
  return ready_ &&
         mover_->Send({.type = order, .program = process.residence.line.number, .bytes = bytes, .other = holes});
}

bool MoverLink::Tell(const wire::MoverMessage& message, int fd) {
  return mover_ && !gone_ && mover_->Send(message, fd);
}

std::uint64_t MoverLink::Listen(Ear ear) {
  ears_.emplace(next_ear_, std::move(ear));
  return next_ear_++;
}

// One may end, or another begin, by what it hears.
void MoverLink::TellEars(const wire::MoverMessage* message) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, ear] : ears_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    const auto found = ears_.find(number);
    if (found == ears_.end()) continue;
    const Ear ear = found->second;  // which may go while it is called
    ear(message);
  }
}

void MoverLink::Rest(bool rests) {
  if (std::exchange(rests_, rests) == rests || !ready_) return;
  mover_->Send({.type = wire::MoverType::kRest, .bytes = rests ? std::uint64_t{1} : 0});
}

void MoverLink::OrderPool(const sched::ResidencyAction& action) {
  if (!ready_) return;
  sched::Apply(action, pool_);
  SendPool();
}

// What is prepared comes first: what is wanted may be more than that.
void MoverLink::SendPool() {
  mover_->Send({.type = wire::MoverType::kPrepare, .bytes = pool_.Goal()});
  mover_->Send({.type = wire::MoverType::kPool, .bytes = pool_.wanted, .other = pool_.most});
}

}  // namespace tessera::server
