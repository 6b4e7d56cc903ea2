#include "face/http/server/http_server.h"

#include <optional>
#include <utility>

#include "face/http/server/api.h"
#include "face/http/server/local_clients.h"
#include "face/http/server/tcp_clients.h"
#include "server/record/log.h"

namespace tessera::face {

struct HttpServer::Impl {
  explicit Impl(server::Control& control) : api(control), local(api, control) {}
  Api api;
  LocalClients local;
  std::optional<TcpClients> tcp;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  acceptor_.reset();
  tcp_acceptor_.reset();
  impl_->api.Interrupt();
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(server::EventLoop& loop, UniqueFd listener,
                                                      server::Control& control) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_unique<Impl>(control)));
  auto acceptor = server::Acceptor::Start(
      loop, std::move(listener), [impl = server->impl_.get()](UniqueFd socket) { impl->local.Add(std::move(socket)); },
      [](UniqueFd) { server::log::Warn("connection refused: no file descriptor is left; raise LimitNOFILE"); });
  if (!acceptor) return std::unexpected(acceptor.error());
  server->acceptor_ = std::move(*acceptor);
  return server;
}

void HttpServer::SetToken(std::string token) { impl_->api.SetToken(std::move(token)); }

Result<void> HttpServer::AddTcp(server::EventLoop& loop, UniqueFd listener, std::string token) {
  impl_->api.SetToken(std::move(token));
  impl_->tcp.emplace(impl_->api);
  auto acceptor = server::Acceptor::Start(
      loop, std::move(listener), [impl = impl_.get()](UniqueFd socket) { impl->tcp->Add(std::move(socket)); },
      [](UniqueFd) {});
  if (!acceptor) return std::unexpected(acceptor.error());
  tcp_acceptor_ = std::move(*acceptor);
  return {};
}

}  // namespace tessera::face
