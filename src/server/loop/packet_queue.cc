#include "server/loop/packet_queue.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "base/seqpacket.h"

namespace tessera::server {
namespace {

constexpr Nanos kFlushAgain = 10 * kMillisecond;

}  // namespace

bool PacketQueue::Send(std::span<const std::byte> packet, int fd, std::function<void()> done) {
  if (waiting_.empty()) {
    if (SendPacket(socket_, packet, fd)) {
      if (done) done();
      return true;
    }
    if (errno != EAGAIN) return false;
    stuck_since_ = MonotonicNow();
  }
  waiting_.push_back({.bytes = {packet.begin(), packet.end()},
                      .fd = UniqueFd(fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1),
                      .done = std::move(done)});
  flush_.ArmIn(kFlushAgain);
  return true;
}

// Who is gone takes nothing: the rest is dropped, one by one.
void PacketQueue::Flush() {
  while (!waiting_.empty()) {
    const Packet& next = waiting_.front();
    if (!SendPacket(socket_, next.bytes, next.fd.Get()) && errno == EAGAIN) return flush_.ArmIn(kFlushAgain);
    stuck_since_ = MonotonicNow();
    const auto done = std::move(waiting_.front().done);
    waiting_.pop_front();
    if (done) done();
  }
}

std::vector<std::function<void()>> PacketQueue::TakeDone() {
  std::vector<std::function<void()>> done;
  for (Packet& packet : waiting_) {
    if (packet.done) done.push_back(std::move(packet.done));
  }
  waiting_.clear();
  return done;
}

}  // namespace tessera::server
