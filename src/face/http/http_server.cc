#include "face/http/http_server.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "face/http/event_streams.h"
#include "face/http/peer_stream.h"
#include "face/http/pending_connections.h"
#include "face/http/tcp.h"
#include "face/http/user_requests.h"
#include "face/text/json.h"
#include "face/text/metrics.h"
#include "face/text/trace_json.h"
#include "server/daemon/space_control.h"
#include "server/record/log.h"
#include "wire/protocol.h"

namespace tessera::face {
namespace {

using httplib::Request;
using httplib::Response;
using nlohmann::json;

constexpr std::size_t kMostBodyBytes = 64 << 10;
constexpr int kOperatorThreads = 4;
constexpr int kUserThreads = 4;
constexpr int kTcpThreads = 2;
constexpr int kMostTcpWaiting = 32;  // requests; further ones are closed
constexpr const char* kPaths =
    "GET /healthz, /metrics, /v1/doctor, /v1/events, /v1/gpus, /v1/trace, /v1/vgpus[/NAME], /v1/spaces[/NAME] and "
    "/v1/processes[/PID], POST /v1/vgpus, /v1/spaces and /v1/reload, DELETE /v1/spaces/NAME, PATCH and DELETE "
    "/v1/vgpus/NAME, POST /v1/vgpus/NAME/freeze, /thaw and /evict, and "
    "POST /v1/processes/PID/freeze, /thaw, /evict and /adopt exist";

void Reply(Response& response, const json& body, int status = 200, const char* type = "application/json") {
  response.status = status;
  // Names of programs may hold any bytes.
  response.set_content(body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n", type);
}

void Refuse(Response& response, const Error& error, int status) {
  Reply(response, ToProblem(error, status), status, "application/problem+json");
}

void Refuse(Response& response, const Error& error) { Refuse(response, error, StatusFor(error.code)); }

template <typename Report>
void ReplyList(Response& response, const char* name, const Result<std::vector<Report>>& reports, int status = 200) {
  if (!reports) return Refuse(response, reports.error());
  json list = json::array();
  for (const Report& report : *reports) list.push_back(ToJson(report));
  Reply(response, {{name, std::move(list)}}, status);
}

void ReplyOne(Response& response, const Result<server::VGpuReport>& report, int status = 200) {
  if (!report) return Refuse(response, report.error());
  response.set_header("ETag", '"' + report->tag + '"');
  Reply(response, ToJson(*report), status);
}

// The tag in If-Match. None when there is no such header or it is "*", which every vGPU matches.
std::optional<std::string> TagAskedFor(const Request& request) {
  const std::string value = request.get_header_value("If-Match");
  if (value.empty() || value == "*") return std::nullopt;
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

void ReplyNothing(Response& response, const Result<void>& done) {
  if (!done) return Refuse(response, done.error());
  response.status = 204;
}

// The parameter `last`: how many of the past events to answer with. nullopt if it is malformed.
std::optional<std::uint64_t> LastAskedFor(const Request& request, std::uint64_t otherwise) {
  if (!request.has_param("last")) return otherwise;
  const std::string text = request.get_param_value("last");
  if (text.empty() || text.size() > 4 || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoul(text);
}

// The stream that follows an answer: its place, and the number of the event after which it starts.
struct Following {
  EventStreams::Place place;
  std::uint64_t after;
};
// Set by a handler; taken by Answer, which has the connection.
thread_local std::optional<Following> following;
// The daemon as the caller of the request that this thread answers may use it. None: by TCP without the token.
thread_local std::optional<server::Control> asker;

// The error for a request that httplib itself refuses.
Error ErrorFor(const Request& request, int status) {
  switch (status) {
    case 404:
      return {ENOENT, "no such path: " + request.path, kPaths};
    case 413:
      return {EMSGSIZE, "the request is too long", "send a body of at most 64 KiB"};
    default:
      return {EINVAL, "unrecognised request", ""};
  }
}

}  // namespace

// The API's requests and their handlers. httplib parses and dispatches; connections and threads are managed here.
class HttpServer::Impl : private httplib::Server {
 public:
  explicit Impl(server::Control& control)
      : control_(control), stop_fd_(eventfd(0, EFD_CLOEXEC)), threads_(kOperatorThreads) {
    set_payload_max_length(kMostBodyBytes);
    AddRoutes();
  }

  ~Impl() override {
    pending_.reset();
    users_pending_.reset();
    tcp_pending_.reset();
    eventfd_write(stop_fd_.Get(), 1);
    threads_.shutdown();
    users_.reset();
    if (tcp_threads_) tcp_threads_->shutdown();
  }

  // Users' silent connections take no place of operators'.
  void Serve(UniqueFd socket) {
    const bool is_operator = ControlOf(socket.Get()).Who().IsOperator();
    (is_operator ? pending_ : users_pending_)->Add(std::move(socket));
  }

  void OpenTcp(std::string token) {
    SetToken(std::move(token));
    tcp_threads_ = std::make_unique<httplib::ThreadPool>(kTcpThreads);
    tcp_pending_ = std::make_unique<PendingConnections>([this](UniqueFd socket) { EnqueueTcp(std::move(socket)); });
  }
  void SetToken(std::string token) {
    const MutexLock lock(token_mutex_);
    token_ = std::move(token);
  }
  void ServeTcp(UniqueFd socket) { tcp_pending_->Add(std::move(socket)); }

 private:
  // The daemon as the process that connected a Unix socket may use it.
  server::Control ControlOf(int socket) const {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) peer.uid = uid_t(-1);
    return control_.For(peer.uid, server::GroupsOfPeer(socket));
  }
  void Enqueue(UniqueFd socket) {
    // Shared, because httplib's queue wants tasks that can be copied.
    threads_.enqueue([this, shared = std::make_shared<UniqueFd>(std::move(socket))] {
      auto control = ControlOf(shared->Get());
      Answer(std::move(*shared), std::move(control));
    });
  }
  void EnqueueTcp(UniqueFd socket) {
    if (tcp_requests_.fetch_add(1) >= kMostTcpWaiting) {
      tcp_requests_.fetch_sub(1);
      return;
    }
    tcp_threads_->enqueue([this, shared = std::make_shared<UniqueFd>(std::move(socket))] {
      Answer(std::move(*shared), std::nullopt);
      tcp_requests_.fetch_sub(1);
    });
  }
  void Answer(UniqueFd socket, std::optional<server::Control> control) {
    if (control) asker.emplace(std::move(*control));
    PeerStream stream(std::move(socket), stop_fd_.Get());
    bool closed = false;
    // Range is ignored: a request for a thousand ranges, each of the whole, would get an answer a thousand times as
    // long.
    process_request(stream, /*close_connection=*/true, closed, [](Request& request) { request.ranges.clear(); });
    if (auto taken = std::exchange(following, {}))
      streams_.Add(std::move(taken->place), std::move(stream).Release(), taken->after);
    asker.reset();
  }
  // Clients on api.sock are who the kernel says; a client on TCP is an operator if it has the token, and else nobody.
  bool MayAsk(const Request& request) {
    if (asker) return true;
    const MutexLock lock(token_mutex_);
    if (!IsBearer(request.get_header_value("Authorization"), token_))
      return server::RuleOf(OperationOf(request)).nobody;
    asker.emplace(control_);
    return true;
  }
  static server::Operation OperationOf(const Request& request) {
    // All others need the token, whatever they ask for.
    return request.path == "/healthz" ? server::Operation::kHealth : server::Operation::kReload;
  }
  void AddRoutes();
  void AddSpaces();
  void AddEvents();
  void AddTrace();
  void AddSteering();
  void AddRefusals();

  server::Control& control_;
  const UniqueFd stop_fd_;  // eventfd, readable from the end on
  EventStreams streams_;
  httplib::ThreadPool threads_;
  std::unique_ptr<UserRequests> users_{std::make_unique<UserRequests>(kUserThreads, [this](UniqueFd socket) {
    auto control = ControlOf(socket.Get());
    Answer(std::move(socket), std::move(control));
  })};
  Mutex token_mutex_;
  std::string token_ TESSERA_GUARDED_BY(token_mutex_);
  std::unique_ptr<httplib::ThreadPool> tcp_threads_;
  std::atomic<int> tcp_requests_{0};
  std::unique_ptr<PendingConnections> tcp_pending_;
  std::unique_ptr<PendingConnections> users_pending_{std::make_unique<PendingConnections>([this](UniqueFd socket) {
    const uid_t uid = ControlOf(socket.Get()).Who().uid;
    users_->Add(uid, std::move(socket));
  })};
  std::unique_ptr<PendingConnections> pending_{
      std::make_unique<PendingConnections>([this](UniqueFd socket) { Enqueue(std::move(socket)); })};
};

void HttpServer::Impl::AddRoutes() {
  Get("/healthz", [this](const Request&, Response& response) {
    Reply(response, {{"status", "ok"},
                     {"version", TESSERA_VERSION},
                     {"protocol", wire::kProtocolVersion},
                     {"soft", control_.Traits().soft},
                     {"pid", getpid()},
                     {"embedded", control_.Traits().embedded}});
  });
  Get("/metrics", [](const Request& request, Response& response) {
    const auto report = asker->All();
    if (!report) return Refuse(response, report.error());
    const MetricsFormat format = ChooseFormat(request.get_header_value("Accept"));
    response.set_content(WriteMetrics(*report, format), ContentType(format));
  });
  Get("/v1/gpus", [](const Request&, Response& response) { ReplyList(response, "gpus", asker->Gpus()); });
  Get("/v1/vgpus", [](const Request&, Response& response) { ReplyList(response, "vgpus", asker->VGpus()); });
  Get("/v1/processes",
      [](const Request&, Response& response) { ReplyList(response, "processes", asker->Processes()); });
  // One process may use several GPUs.
  Get("/v1/processes/([0-9]{1,9})", [](const Request& request, Response& response) {
    const pid_t pid = std::stoi(request.matches[1]);
    const auto processes = asker->Processes(pid);
    if (processes && processes->empty())
      return Refuse(response, {ENOENT, "process " + std::to_string(pid) + " uses no GPU", "see 'tessera ps'"});
    ReplyList(response, "processes", processes);
  });
  Post("/v1/vgpus", [](const Request& request, Response& response) {
    auto asked = ParseVGpuRequest(request.body);
    if (!asked) return Refuse(response, asked.error());
    ReplyOne(response, asker->Create(*asked), 201);
  });
  constexpr const char* kOneVGpu = "/v1/vgpus/([^/]+)";
  Get(kOneVGpu,
      [](const Request& request, Response& response) { ReplyOne(response, asker->VGpuNamed(request.matches[1])); });
  Patch(kOneVGpu, [](const Request& request, Response& response) {
    auto asked = ParseVGpuRequest(request.body);
    if (!asked) return Refuse(response, asked.error());
    asked->if_tag = TagAskedFor(request);
    const bool wait = request.get_param_value("wait") != "false";
    ReplyOne(response, asker->Change(request.matches[1], *asked, wait));
  });
  Delete(kOneVGpu, [](const Request& request, Response& response) {
    auto removed = asker->Remove(request.matches[1], request.get_param_value("force") == "1", TagAskedFor(request));
    if (!removed) return Refuse(response, removed.error());
    response.status = 204;
  });
  AddSpaces();
  AddEvents();
  AddTrace();
  AddSteering();
  AddRefusals();
}

void HttpServer::Impl::AddSpaces() {
  Get("/v1/spaces",
      [](const Request&, Response& response) { ReplyList(response, "spaces", server::SpaceControl(*asker).All()); });
  Post("/v1/spaces", [](const Request& request, Response& response) {
    const auto asked = ParseSpaceRequest(request.body);
    if (!asked) return Refuse(response, asked.error());
    const auto made = server::SpaceControl(*asker).Create(asked->name, asked->gpu);
    if (!made) return Refuse(response, made.error());
    Reply(response, ToJson(*made), 201);
  });
  constexpr const char* kOneSpace = "/v1/spaces/([^/]+)";
  Get(kOneSpace, [](const Request& request, Response& response) {
    const auto space = server::SpaceControl(*asker).Named(request.matches[1]);
    if (!space) return Refuse(response, space.error());
    Reply(response, ToJson(*space));
  });
  Delete(kOneSpace, [](const Request& request, Response& response) {
    ReplyNothing(response, server::SpaceControl(*asker).Remove(request.matches[1]));
  });
}

void HttpServer::Impl::AddTrace() {
  Get("/v1/trace", [](const Request& request, Response& response) {
    constexpr Nanos kMinute = 60 * kSecond;
    const bool saved = request.get_param_value("saved") == "1";
    const std::string text = request.get_param_value("past_ms");
    if (text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
      return Refuse(response, {EINVAL, "invalid past_ms", "send a number of milliseconds"});
    const Nanos past = text.empty() ? kMinute : std::stol(text) * kMillisecond;
    const auto trace = asker->Trace(saved ? std::nullopt : std::optional(past));
    if (!trace) return Refuse(response, trace.error());
    std::vector<server::Event> events;
    if (!saved) {
      auto all = asker->Events(0, server::events::kKept);
      if (!all) return Refuse(response, all.error());
      events = std::move(all->events);
      std::erase_if(events, [begin = (trace->now - past + trace->wall) / kMicrosecond](const server::Event& event) {
        return event.time_us < begin;
      });
    }
    response.set_content(WriteTrace(*trace, events), "application/json");
  });
}

void HttpServer::Impl::AddEvents() {
  Get("/v1/events", [this](const Request& request, Response& response) {
    constexpr std::uint64_t kListed = 100;
    const bool follows = request.get_header_value("Accept").find("text/event-stream") != std::string::npos;
    const auto last = LastAskedFor(request, follows ? 0 : kListed);
    if (!last) return Refuse(response, {EINVAL, "invalid last", "send a number from 0 to 9999"});
    const auto seen = asker->Events(0, server::events::kKept);
    if (!seen) return Refuse(response, seen.error());
    const std::vector<server::Event>& events = seen->events;
    const std::size_t first = events.size() - std::min<std::size_t>(events.size(), *last);
    if (!follows) {
      json list = json::array();
      for (std::size_t i = first; i < events.size(); ++i) list.push_back(ToJson(events[i]));
      return Reply(response, {{"events", std::move(list)}});
    }
    std::uint64_t after = first < events.size() ? events[first].number - 1 : seen->upto;
    auto place = streams_.TakePlace(asker->Who().IsOperator() ? std::nullopt : std::optional(asker->Who().uid));
    if (!place)
      return Refuse(response, {EAGAIN, "too many clients follow the events", "end one of them, or poll /v1/events"},
                    503);
    if (request.has_header("Last-Event-ID")) after = NumberOfEventId(request.get_header_value("Last-Event-ID"));
    if (request.method == "GET") following.emplace(std::move(*place), after);
    response.set_header("Cache-Control", "no-store");
    // Only the head is written here; EventStreams writes the body.
    response.set_content_provider("text/event-stream", [](std::size_t, httplib::DataSink&) { return false; });
  });
}

void HttpServer::Impl::AddSteering() {
  Post("/v1/reload", [](const Request&, Response& response) {
    const auto changes = asker->Reload();
    if (!changes) return Refuse(response, changes.error());
    json list = json::array();
    for (const server::ConfigChange& change : *changes)
      list.push_back({{"key", change.key}, {"from", change.from}, {"to", change.to}, {"live", change.live}});
    Reply(response, {{"changes", std::move(list)}});
  });
  Get("/v1/doctor", [](const Request&, Response& response) { ReplyList(response, "checks", asker->Checks()); });
  for (const bool frozen : {true, false}) {
    const std::string action = frozen ? "/freeze" : "/thaw";
    Post("/v1/processes/([0-9]{1,9})" + action, [frozen](const Request& request, Response& response) {
      ReplyNothing(response, asker->Freeze(std::stoi(request.matches[1]), frozen));
    });
    Post("/v1/vgpus/([^/]+)" + action, [frozen](const Request& request, Response& response) {
      ReplyNothing(response, asker->Freeze(request.matches[1].str(), frozen));
    });
  }
  // Moving takes long: the answer lists what was begun.
  Post("/v1/processes/([0-9]{1,9})/evict", [](const Request& request, Response& response) {
    const auto keep = ParseEviction(request.body);
    if (!keep) return Refuse(response, keep.error());
    ReplyList(response, "evictions", asker->Evict(std::stoi(request.matches[1]), *keep), 202);
  });
  Post("/v1/vgpus/([^/]+)/evict", [](const Request& request, Response& response) {
    const auto keep = ParseEviction(request.body);
    if (!keep) return Refuse(response, keep.error());
    ReplyList(response, "evictions", asker->Evict(request.matches[1].str(), *keep), 202);
  });
  Post("/v1/processes/([0-9]{1,9})/adopt", [](const Request& request, Response& response) {
    auto vgpu = ParseAdoption(request.body);
    if (!vgpu) return Refuse(response, vgpu.error());
    auto adopted = asker->Adopt(std::stoi(request.matches[1]), *vgpu);
    if (!adopted) return Refuse(response, adopted.error());
    Reply(response, ToJson(*adopted));
  });
}

void HttpServer::Impl::AddRefusals() {
  // httplib answers 404 for a known path with another method.
  const httplib::Server::Handler wrong_method = [](const Request& request, Response& response) {
    Refuse(response, {EOPNOTSUPP, "method " + request.method + " is not allowed for " + request.path, kPaths});
  };
  constexpr const char* kLists = "/healthz|/metrics|/v1/(events|gpus|processes|trace|vgpus)";
  Post("/healthz|/metrics|/v1/(events|gpus|processes|trace)|/v1/vgpus/[^/]+", wrong_method);
  Put(std::string(kLists) + "|/v1/vgpus/[^/]+", wrong_method);
  Patch(kLists, wrong_method);
  Delete(kLists, wrong_method);
  Get("/v1/reload", wrong_method);
  // Checked before routing, so that a client without the token cannot probe for paths. Without a length, httplib would
  // read until the client closes, while the client waits for the answer.
  set_pre_routing_handler([this](const Request& request, Response& response) {
    if (!MayAsk(request)) {
      response.set_header("WWW-Authenticate", "Bearer");
      Refuse(response, {EACCES, "token missing or wrong", "send the header Authorization: Bearer TOKEN"}, 401);
      return HandlerResponse::Handled;
    }
    const bool has_length = request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
    if (request.method == "GET" || request.method == "HEAD" || request.method == "DELETE" || has_length)
      return HandlerResponse::Unhandled;
    Refuse(response, {EINVAL, "the request has no body", "send a JSON object"});
    return HandlerResponse::Handled;
  });
  set_error_handler([](const Request& request, Response& response) {
    if (response.body.empty()) Refuse(response, ErrorFor(request, response.status), response.status);
  });
  set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
    Refuse(response, {EIO, "internal error", "see the daemon's log"});
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  acceptor_.reset();
  tcp_acceptor_.reset();
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(server::EventLoop& loop, UniqueFd listener,
                                                      server::Control& control) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_unique<Impl>(control)));
  auto acceptor = server::Acceptor::Start(
      loop, std::move(listener), [impl = server->impl_.get()](UniqueFd socket) { impl->Serve(std::move(socket)); },
      [](UniqueFd) { server::log::Warn("connection refused: no file descriptor is left; raise LimitNOFILE"); });
  if (!acceptor) return std::unexpected(acceptor.error());
  server->acceptor_ = std::move(*acceptor);
  return server;
}

void HttpServer::SetToken(std::string token) { impl_->SetToken(std::move(token)); }

Result<void> HttpServer::AddTcp(server::EventLoop& loop, UniqueFd listener, std::string token) {
  impl_->OpenTcp(std::move(token));
  auto acceptor = server::Acceptor::Start(
      loop, std::move(listener), [impl = impl_.get()](UniqueFd socket) { impl->ServeTcp(std::move(socket)); },
      [](UniqueFd) {});
  if (!acceptor) return std::unexpected(acceptor.error());
  tcp_acceptor_ = std::move(*acceptor);
  return {};
}

}  // namespace tessera::face
