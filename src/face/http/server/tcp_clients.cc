#include "face/http/server/tcp_clients.h"

#include <memory>
#include <utility>

namespace tessera::face {

TcpClients::TcpClients(Api& api) : api_(api) {
  pending_ = std::make_unique<PendingConnections>([this](UniqueFd socket) { Enqueue(std::move(socket)); });
}

TcpClients::~TcpClients() {
  pending_.reset();
  threads_.shutdown();
}

void TcpClients::Enqueue(UniqueFd socket) {
  if (requests_.fetch_add(1) >= kMostWaiting) {
    requests_.fetch_sub(1);
    return;
  }
  // Shared, because httplib's queue wants tasks that can be copied.
  threads_.enqueue([this, shared = std::make_shared<UniqueFd>(std::move(socket))] {
    api_.Answer(std::move(*shared), std::nullopt);
    requests_.fetch_sub(1);
  });
}

}  // namespace tessera::face
