#include "face/http/server/local_clients.h"

#include <sys/socket.h>

#include <memory>
#include <utility>

namespace tessera::face {

LocalClients::LocalClients(Api& api, server::Control& control)
    : api_(api), control_(control), users_(kUserThreads, [this](UniqueFd socket) { Answer(std::move(socket)); }) {
  users_pending_ = std::make_unique<PendingConnections>([this](UniqueFd socket) {
    const uid_t uid = ControlOf(socket.Get()).Who().uid;
    users_.Add(uid, std::move(socket));
  });
  pending_ = std::make_unique<PendingConnections>([this](UniqueFd socket) {
    // Shared, because httplib's queue wants tasks that can be copied.
    threads_.enqueue([this, shared = std::make_shared<UniqueFd>(std::move(socket))] { Answer(std::move(*shared)); });
  });
}

LocalClients::~LocalClients() {
  pending_.reset();
  users_pending_.reset();
  threads_.shutdown();
}

void LocalClients::Add(UniqueFd socket) {
  const bool is_operator = ControlOf(socket.Get()).Who().IsOperator();
  (is_operator ? pending_ : users_pending_)->Add(std::move(socket));
}

server::Control LocalClients::ControlOf(int socket) const {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) peer.uid = uid_t(-1);
  return control_.For(peer.uid, server::GroupsOfPeer(socket));
}

void LocalClients::Answer(UniqueFd socket) {
  auto control = ControlOf(socket.Get());
  api_.Answer(std::move(socket), std::move(control));
}

}  // namespace tessera::face
