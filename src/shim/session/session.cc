#include "shim/session/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "base/install/peer.h"
#include "base/install/run_dir.h"
#include "base/seqpacket.h"
#include "base/uncancelled.h"
#include "shim/process/say.h"
#include "shim/session/space_environment.h"

namespace tessera::shim {
namespace {

// A daemon that does not answer for this long counts as gone; it answers within microseconds.
constexpr int kAnswerTimeoutMs = 10'000;
// So does one that reads nothing for this long once the socket is full, at some hundred messages: the sender holds
// mutexes.
constexpr int kSendTimeoutMs = 1'000;

}  // namespace

Session& Session::Instance() {
  static Session* session = new Session;  // outlives everything: threads may still use it at exit
  return *session;
}

cuda::CUresult Session::Open(bool observer) {
  const MutexLock lock(opening_);
  if (opened_) return answer_;
  observer_ = observer;
  const char* vgpus = getenv("TESSERA_VGPU");
  if (!vgpus || !*vgpus) {
    opened_ = true;
    return answer_;
  }
  if (const char* gpus = getenv("CUDA_VISIBLE_DEVICES"); gpus && strstr(gpus, "MIG-")) {
    Say("CUDA_VISIBLE_DEVICES names a MIG instance (%s), which Tessera does not share; name a whole GPU, or start the "
        "program without Tessera",
        gpus);
    opened_ = true;
    return answer_ = cuda::CUDA_ERROR_NO_DEVICE;
  }
  // Kept: a reconnect comes at any time, and the program may change its environment meanwhile.
  path_ = RunDir("", false) + "/client.sock";
  vgpus_ = vgpus;
  switch (SayHello(true)) {
    case Hello::kWelcome:
      if (const auto wrong = WhyNotInSpace(terms_); !wrong.empty()) {
        Complain(wrong);
        AbandonForGood();
        answer_ = cuda::CUDA_ERROR_NO_DEVICE;
        break;
      }
      answer_ = cuda::CUDA_SUCCESS;
      lost_since_ = 0;
      managed_.store(true, std::memory_order_release);
      break;
    case Hello::kRefused:
      answer_ = cuda::CUDA_ERROR_NO_DEVICE;
      break;
    case Hello::kNobody:  // a daemon may be there at the next cuInit
      return cuda::CUDA_ERROR_SYSTEM_NOT_READY;
  }
  opened_ = true;
  return answer_;
}

// Connects and introduces the process.
Session::Hello Session::SayHello(bool loud) {
  const Uncancelled uncancelled;
  if (const auto trusted = CheckRunDir(path_.substr(0, path_.rfind('/'))); !trusted) {
    if (loud) Say("%s", trusted.error().Text().c_str());
    return Hello::kNobody;
  }
  UniqueFd socket = ConnectSeqpacket(path_.c_str(), kSendTimeoutMs);
  if (!socket) {
    if (loud) Say("no daemon answers at %s (%s); start tesserad, or use 'tessera run'", path_.c_str(), strerror(errno));
    return Hello::kNobody;
  }
  if (!PeerIsTrusted(socket.Get())) {
    if (loud)
      Say("the daemon at %s is user %d's, who is neither root nor this program's user; set TESSERA_RUN_DIR to the run "
          "directory of another daemon",
          path_.c_str(), static_cast<int>(PeerUser(socket.Get())));
    return Hello::kNobody;
  }
  wire::Hello hello{.pid = getpid(), .observer = observer_};
  wire::SetText(hello.vgpus, vgpus_);
  wire::SetText(hello.program, program_invocation_short_name);
  wire::Welcome welcome;
  wire::Header header;
  {
    const MutexLock lock(mutex_);
    socket_ = std::move(socket);
  }
  if (!Ask(wire::Make(hello), welcome, header)) {
    const MutexLock lock(mutex_);
    return socket_ ? Hello::kRefused : Hello::kNobody;
  }
  {
    const MutexLock lock(mutex_);
    if (!managed_) terms_ = welcome;
    grace_ = welcome.grace_ns;
    block_on_loss_ = welcome.block_on_loss != 0;
  }
  if (auto* const tell = on_welcome_.load()) tell(*this);
  return Hello::kWelcome;
}

void Session::AbandonForGood() {
  const MutexLock lock(mutex_);
  socket_.Reset();
}

void Session::EndReconnect(bool stands) {
  const MutexLock lock(mutex_);
  if (!stands) {
    socket_.Reset();
  } else if (socket_) {
    complaint_.clear();
    lost_since_ = 0;
  }
}

std::size_t Session::Exchange(std::span<const std::byte> request, std::span<const int> along,
                              std::span<std::byte> packet, wire::Header& header, std::span<UniqueFd> fds) {
  if (!MayWait()) return 0;
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  if (!MaySpeak()) return 0;
  ssize_t length = -1;
  if (SendPacket(socket_.Get(), request, along)) {
    pollfd wait{.fd = socket_.Get(), .events = POLLIN, .revents = 0};
    int ready;
    do {
      ready = poll(&wait, 1, kAnswerTimeoutMs);
    } while (ready < 0 && errno == EINTR);
    std::size_t received;
    if (ready > 0) length = ReceivePacket(socket_.Get(), packet, fds, received);
  }
  if (length <= 0) {
    LoseLocked();
    return 0;
  }
  const std::span<const std::byte> received = packet.first(length);
  switch (wire::ReadHeader(received, header)) {
    case wire::Fault::kNone:
      break;
    case wire::Fault::kOtherVersion: {
      char text[128];
      snprintf(text, sizeof text,
               "the daemon speaks protocol %u and this program's shim %u; restart the older of the two",
               unsigned{header.version}, unsigned{wire::kProtocolVersion});
      ComplainLocked(text);
      return 0;
    }
    default:
      ComplainLocked("the daemon's answer is not a Tessera message; is another program listening on client.sock?");
      LoseLocked();
      return 0;
  }
  if (const auto refused = wire::ReadBody<wire::Refused>(header, received)) {
    ComplainLocked(wire::TextOf(refused->text));
    return 0;
  }
  return length;
}

void Session::Complain(std::string_view text) {
  const MutexLock lock(mutex_);
  ComplainLocked(text);
}

void Session::ComplainLocked(std::string_view text) {
  if (text != complaint_) Say("%.*s", static_cast<int>(text.size()), text.data());
  complaint_ = text;
}

bool Session::Send(std::span<const std::byte> message) {
  if (!MayWait()) return false;
  const Uncancelled uncancelled;
  const MutexLock lock(mutex_);
  if (!MaySpeak()) return false;
  if (SendPacket(socket_.Get(), message)) return true;
  LoseLocked();
  return false;
}

void Session::LoseLocked() {
  socket_.Reset();
  Nanos never = 0;
  lost_since_.compare_exchange_strong(never, MonotonicNow());
}

bool Session::Lost() {
  const MutexLock lock(mutex_);
  if (!socket_) return lost_since_ != 0;
  pollfd wait{.fd = socket_.Get(), .events = 0, .revents = 0};
  if (poll(&wait, 1, 0) > 0 && (wait.revents & (POLLHUP | POLLERR))) LoseLocked();
  return lost_since_ != 0;
}

void Session::AbandonAfterFork() {
  const MutexLock opening(opening_);
  const MutexLock lock(mutex_);
  socket_.Reset();
  managed_ = false;
  lost_since_ = 0;
  only_one_ = false;
  if (observer_) opened_ = false;
}

}  // namespace tessera::shim
