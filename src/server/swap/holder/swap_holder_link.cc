#include "server/swap/holder/swap_holder_link.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/install/own_program.h"
#include "base/install/peer.h"
#include "base/seqpacket.h"
#include "server/record/log.h"

namespace tessera::server {

using wire::SwapHolderMessage;
using wire::SwapHolderType;

namespace {

constexpr Nanos kBetweenStarts = kSecond;
constexpr Nanos kAfterFailure = 10 * kSecond;  // after a holder could not be started
constexpr Nanos kMostStuck = 10 * kSecond;     // a holder that takes nothing for so long hangs
constexpr int kHolderListener = 3;             // where the holder finds it

}  // namespace

SwapHolderLink::SwapHolderLink(EventLoop& loop, std::uint32_t gpu, std::string path, SwapSlots& slots,
                               const SwapFile& file, UniqueFd holder)
    : loop_(loop),
      gpu_(gpu),
      path_(std::move(path)),
      slots_(slots),
      file_(file),
      lost_(loop, [this] { Lost(); }),
      again_(loop, [this] { Ensure(); }),
      stuck_(loop, [this] { LookWhetherItReads(); }) {
  if (holder && Attach(std::move(holder))) GiveTables();  // there may be a file now
}

void SwapHolderLink::Ensure() {
  const Nanos now = MonotonicNow();
  if (socket_ || now < next_start_) return;
  const auto started = Start();
  next_start_ = now + (started ? kBetweenStarts : kAfterFailure);
  if (started) return;
  log::Error(
      "GPU {}: there is no swap holder: {}. If the daemon ends, what programs have in host memory then stays there",
      gpu_, started.error().Text());
  again_.Arm(next_start_);
}

Result<void> SwapHolderLink::Start() {
  std::erase_if(children_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
  UniqueFd listener = ListenSeqpacket(path_.c_str(), 4);
  if (!listener) return FailErrno("listen at " + path_);
  OwnProgram program = {
      .name = "tessera-swap-holder", .arguments = {path_}, .files = {{listener.Get(), kHolderListener}}, .lasts = true};
  if (std::exchange(started_before_, true)) program.without.emplace_back("TESSERA_FAULT");
  const auto pid = Spawn(program);
  if (!pid) return std::unexpected(pid.error());
  children_.push_back(*pid);
  UniqueFd socket = ConnectSeqpacket(path_.c_str());
  if (!socket || !PeerIsOwn(socket.Get()) || !Attach(std::move(socket))) return FailErrno("connect to " + path_);
  GiveTables();
  GiveSlots();
  return {};
}

bool SwapHolderLink::Attach(UniqueFd socket) {
  // It says nothing: this is its end.
  auto watch = loop_.WatchReadable(socket.Get(), [this] { lost_.MarkDue(); });
  if (!watch) return false;
  fcntl(socket.Get(), F_SETFL, O_NONBLOCK);
  socket_ = std::move(socket);
  watch_ = std::move(*watch);
  queue_ = std::make_unique<PacketQueue>(loop_, socket_.Get());
  return true;
}

void SwapHolderLink::GiveTables() {
  Give(SwapHolderType::kSlotsTable, wire::kHandoverVersion, slots_.table());
  if (file_.bytes > 0) {
    Give(SwapHolderType::kFile, 0, file_.file.Get());
    Give(SwapHolderType::kFileTable, 0, file_.table.Get());
  }
  if (mover_) Give(SwapHolderType::kMover, 0, mover_.Get());
}

void SwapHolderLink::GiveSlots() {
  for (auto slot = slots_.After(0); slot; slot = slots_.After(slot->number)) {
    if (!Give(SwapHolderType::kSlot, slot->number, slot->memory, [this](int error) { NoteGiven(error); }))
      NoteGiven(errno);
  }
}

bool SwapHolderLink::Give(SwapHolderType type, std::uint64_t number, int fd, PacketQueue::Done done) {
  const SwapHolderMessage message = {.type = type, .number = number};
  const bool gives = socket_ && queue_->Send(wire::BytesOf(message), fd, std::move(done));
  if (gives && queue_->StuckSince() != kNever) stuck_.ArmIn(kMostStuck);
  return gives;
}

void SwapHolderLink::SetMover(pid_t mover, std::function<void(std::uint64_t)> kept) {
  kept_ = std::move(kept);
  mover_.Reset(static_cast<int>(syscall(SYS_pidfd_open, mover, 0)));
  if (mover_) Give(SwapHolderType::kMover, 0, mover_.Get());
}

void SwapHolderLink::Keep(std::uint64_t number, UniqueFd memory) {
  const int fd = memory.Get();
  if (!slots_.Keep(number, std::move(memory))) {
    if (!std::exchange(full_told_, true))
      log::Warn("GPU {}: not all host memory of its pool can be kept for the next mover: {}", gpu_,
                "raise the limit of open files (LimitNOFILE=)");
    return Kept(number);
  }
  const auto given = [this, number](int error) {
    NoteGiven(error);
    Kept(number);
  };
  if (!Give(SwapHolderType::kSlot, number, fd, given)) given(socket_ ? errno : 0);
}

void SwapHolderLink::KeepLeft(std::uint64_t number, pid_t owner, UniqueFd memory) {
  slots_.NoteLeft(number, gpu_, owner);
  Keep(number, std::move(memory));
}

// A slot has been given to the holder, or could not be. The next holder gets what a holder did not that has ended.
void SwapHolderLink::NoteGiven(int error) {
  if (error == 0 || error == EPIPE || error == ECONNRESET || std::exchange(lacks_told_, true)) return;
  log::Warn(
      "GPU {}: not all host memory of its pool could be given to the swap holder: {}. If the daemon ends, what "
      "programs "
      "have there then stays there. Raise the limit of open files (LimitNOFILE=)",
      gpu_, std::strerror(error));
}

void SwapHolderLink::Forget(std::uint64_t number) {
  slots_.Forget(number);
  Give(SwapHolderType::kSlotGone, number);
}

void SwapHolderLink::Kept(std::uint64_t number) const {
  if (kept_) kept_(number);
}

// A holder that hangs is left to itself: it ends when its line has ended and nobody has come for a minute.
void SwapHolderLink::LookWhetherItReads() {
  if (!socket_) return;
  const Nanos since = queue_->StuckSince();
  if (since == kNever) return;
  MonotonicNow() >= since + kMostStuck ? Lost() : stuck_.Arm(since + kMostStuck);
}

// What waits for the old holder waits for the next one, which gets all.
void SwapHolderLink::Lost() {
  if (!socket_) return;
  watch_ = {};
  const auto waiting = queue_->TakeDone();
  queue_.reset();
  socket_.Reset();
  log::Warn("GPU {}: the swap holder has ended; another one is started", gpu_);
  Ensure();
  if (!socket_) again_.Arm(next_start_);
  for (const auto& done : waiting) done(0);
}

}  // namespace tessera::server
