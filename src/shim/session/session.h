// The process's conversation with the daemon.
#pragma once

#include <pthread.h>

#include <atomic>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fork_mutex.h"
#include "base/unique_fd.h"
#include "cuda/cuda_abi.h"
#include "wire/protocol.h"

namespace tessera::shim {

// The process's session with its daemon. One per process, never destroyed. Any thread; Ask blocks for one round trip.
class Session {
 public:
  static Session& Instance();

  // Reads TESSERA_VGPU and says Hello. An observer only asks, and is no process of the vGPU. Returns CUDA_SUCCESS, also
  // if TESSERA_VGPU is not set. If the daemon refuses, returns CUDA_ERROR_NO_DEVICE, if none answers,
  // CUDA_ERROR_SYSTEM_NOT_READY, with a line on stderr that says why. Later calls repeat the first answer, except that
  // they try again if no daemon answered.
  cuda::CUresult Open(bool observer = false);

  // After Open: the place in a space that the daemon named; `space` is empty where there is none.
  const wire::Welcome& Terms() const { return terms_; }
  // True after Open when the process belongs to a vGPU.
  bool Managed() const { return managed_.load(std::memory_order_acquire); }

  // Sends a request, with the descriptors `along`, and waits for its answer, with those that come along. False if the
  // daemon is gone (the session is then lost) or, with a line on stderr, if it refused: then the header is of a
  // Refused.
  template <typename Request, typename Answer>
  bool Ask(const wire::Message<Request>& request, Answer& answer, wire::Header& header, std::span<UniqueFd> fds = {},
           std::span<const int> along = {}) {
    std::byte packet[wire::kMaxMessageBytes];
    const auto length = Exchange(wire::BytesOf(request), along, packet, header, fds);
    if (length == 0) return false;
    const auto body = wire::ReadBody<Answer>(header, {packet, length});
    if (body) answer = *body;
    return body.has_value();
  }

  // Sends a message that has no answer. False if the daemon is gone, or not yet back for this thread.
  template <typename Body>
  bool Tell(const wire::Message<Body>& message) {
    return Send(wire::BytesOf(message));
  }

  // Whether the daemon is gone; looks at the socket.
  bool Lost();
  Nanos LostSince() const { return lost_since_.load(); }
  // How long the last orders stand without a daemon. After that the program waits for a daemon (BlockOnLoss), or goes
  // on without one.
  Nanos Grace() const { return grace_; }
  bool BlockOnLoss() const { return block_on_loss_; }

  // Connects anew after the session was lost: says Hello and then calls `attach`, which attaches the GPUs and returns
  // whether it could. If not, the daemon counts as gone, since the same time as before. Until this returns, other
  // threads find the daemon gone, because a new daemon does not know yet what they would speak of.
  template <typename Attach>
  bool Reconnect(Attach&& attach) {
    alone_ = pthread_self();
    only_one_ = true;
    const bool stands = SayHello(false) == Hello::kWelcome && attach();
    EndReconnect(stands);
    only_one_ = false;
    return stands;
  }

  // Writes a line on stderr, unless the last one said the same: a reconnect that is tried again and again fails for the
  // same reason each time.
  void Complain(std::string_view text);

  // `say` is called each time a daemon has welcomed this process, before any other thread speaks to it.
  void OnWelcome(void (*say)(Session&)) { on_welcome_ = say; }

  // In a forked child: the session is the parent's. An observer opens one of its own when it asks next; for the others
  // there is none, because CUDA itself does not work in the child of a process that has used it.
  void AbandonAfterFork();

 private:
  Session() = default;
  enum class Hello { kWelcome, kRefused, kNobody };
  Hello SayHello(bool loud);
  void EndReconnect(bool stands);
  void AbandonForGood();
  // False while another thread reconnects, which takes long if the daemon hangs.
  bool MayWait() const { return !only_one_ || pthread_equal(alone_, pthread_self()); }
  bool MaySpeak() const TESSERA_REQUIRES(mutex_) { return socket_ && MayWait(); }
  std::size_t Exchange(std::span<const std::byte> request, std::span<const int> along, std::span<std::byte> packet,
                       wire::Header& header, std::span<UniqueFd> fds);
  bool Send(std::span<const std::byte> message);
  void ComplainLocked(std::string_view text) TESSERA_REQUIRES(mutex_);
  void LoseLocked() TESSERA_REQUIRES(mutex_);

  ForkMutex opening_;  // taken before mutex_
  bool opened_ TESSERA_GUARDED_BY(opening_) = false;
  cuda::CUresult answer_ TESSERA_GUARDED_BY(opening_) = cuda::CUDA_SUCCESS;
  // Written by Open, before anything else is possible, and constant from then on.
  bool observer_ = false;
  std::string path_, vgpus_;  // of the socket; TESSERA_VGPU
  wire::Welcome terms_;       // of the first daemon

  std::atomic<bool> managed_{false};
  std::atomic<Nanos> lost_since_{0};   // 0: not lost
  std::atomic<bool> only_one_{false};  // a reconnect is under way, by the thread
  std::atomic<pthread_t> alone_{};     // that this names

  std::atomic<Nanos> grace_{0};
  std::atomic<bool> block_on_loss_{false};
  std::atomic<void (*)(Session&)> on_welcome_{nullptr};

  ForkMutex mutex_;  // held for a round trip on the socket
  UniqueFd socket_ TESSERA_GUARDED_BY(mutex_);
  std::string complaint_ TESSERA_GUARDED_BY(mutex_);  // what was said last, since a session stood
};

}  // namespace tessera::shim
