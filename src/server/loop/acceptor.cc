#include "server/loop/acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>

namespace tessera::server {
namespace {

UniqueFd OpenSpareFd() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

UniqueFd AcceptFrom(const UniqueFd& listener) {
  return UniqueFd(accept4(listener.Get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace

Acceptor::Acceptor(UniqueFd listener, Take take, Take turn_away)
    : listener_(std::move(listener)),
      take_(std::move(take)),
      turn_away_(std::move(turn_away)),
      spare_fd_(OpenSpareFd()) {}

Result<std::unique_ptr<Acceptor>> Acceptor::Start(EventLoop& loop, UniqueFd listener, Take take, Take turn_away) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(listener), std::move(take), std::move(turn_away)));
  auto watch = loop.WatchReadable(acceptor->listener_.Get(), [self = acceptor.get()] { self->Accept(); });
  if (!watch) return std::unexpected(watch.error());
  acceptor->watch_ = std::move(*watch);
  return acceptor;
}

void Acceptor::Accept() {
  constexpr int kAtOnce = 64;  // then those who are in already get their turn
  for (int n = 0; n < kAtOnce && AcceptOne(); ++n) {
  }
}

// False when there is nothing more to accept now.
bool Acceptor::AcceptOne() {
  if (UniqueFd socket = AcceptFrom(listener_)) {
    take_(std::move(socket));
    return true;
  }
  if (errno != EMFILE && errno != ENFILE) return errno == EINTR || errno == ECONNABORTED;
  spare_fd_.Reset();
  if (UniqueFd socket = AcceptFrom(listener_)) turn_away_(std::move(socket));
  spare_fd_ = OpenSpareFd();
  return false;
}

}  // namespace tessera::server
