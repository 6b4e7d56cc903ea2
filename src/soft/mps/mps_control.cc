#include "soft/mps/mps_control.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/seqpacket.h"
#include "soft/mps/mps_directory.h"
#include "soft/shared/mps_servers.h"
#include "soft/shared/soft_gpu.h"

namespace tessera::soft {
namespace {

// How often servers are looked after while there are any.
constexpr int kTendMs = 20;

template <typename Number>
std::optional<Number> ParseNumber(const std::string& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

std::string FormatPercentage(double percentage) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f\n", percentage);
  return text;
}

std::string Lines(const std::vector<pid_t>& pids) {
  std::string text;
  for (const pid_t pid : pids) text += std::to_string(pid) + "\n";
  return text;
}

std::string Refusal(const Error& error) { return error.Text() + "\n"; }

constexpr const char* kBadPercentage = "a percentage is more than 0 and at most 100\n";

}  // namespace

const MpsControl::Command MpsControl::kCommands[] = {
    {"get_server_list", "", 0, 0, &MpsControl::ServerList},
    {"start_server", "-uid UID", 2, 2, &MpsControl::StartServer},
    {"get_server_status", "PID", 1, 1, &MpsControl::ServerStatus},
    {"get_client_list", "PID", 1, 1, &MpsControl::ClientList},
    {"get_device_client_list", "[PID]", 0, 1, &MpsControl::DeviceClientList},
    {"set_default_active_thread_percentage", "PERCENTAGE", 1, 1, &MpsControl::SetDefaultPercentage},
    {"get_default_active_thread_percentage", "", 0, 0, &MpsControl::DefaultPercentage},
    {"set_active_thread_percentage", "PID PERCENTAGE", 2, 2, &MpsControl::SetPercentage},
    {"get_active_thread_percentage", "PID", 1, 1, &MpsControl::Percentage},
    {"terminate_client", "SERVER_PID CLIENT_PID", 2, 2, &MpsControl::TerminateClient},
    {"shutdown_server", "PID [-f]", 1, 2, &MpsControl::ShutdownServer},
    {"quit", "[-t SECONDS]", 0, 2, &MpsControl::Quit},
};

std::optional<double> ParseMpsPercentage(const std::string& text) {
  const auto number = ParseNumber<double>(text);
  return number && *number > 0 && *number <= 100 ? number : std::nullopt;
}

MpsControl::MpsControl(SharedState& state, UniqueFd listener, double percentage, const std::string& logs)
    : state_(state),
      listener_(std::move(listener)),
      percentage_(percentage),
      log_(logs + "/control.log", "Control"),
      server_log_(logs + "/server.log", "Other") {
  log_.Write("Start");
}

void MpsControl::Run() {
  while ((!quitting_ || !servers_.empty()) && Reachable()) {
    std::vector<pollfd> files = {{.fd = listener_.Get(), .events = POLLIN, .revents = 0}};
    for (const UniqueFd& connection : connections_) files.push_back({connection.Get(), POLLIN, 0});
    const int ready = poll(files.data(), files.size(), kTendMs);
    if (ready > 0) {
      for (std::size_t i = files.size() - 1; i > 0; --i) {
        const auto connection = connections_.begin() + static_cast<std::ptrdiff_t>(i) - 1;
        if (files[i].revents != 0 && !Serve(files[i].fd)) connections_.erase(connection);
      }
      if (files[0].revents != 0) Accept();
    }
    Tend();
  }
  log_.Write("Exit");
}

bool MpsControl::Reachable() const {
  sockaddr_un address = {};
  socklen_t size = sizeof address - 1;  // the path ends with a zero then
  return getsockname(listener_.Get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
         access(address.sun_path, F_OK) == 0;
}

void MpsControl::Accept() {
  UniqueFd connection(accept4(listener_.Get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection) connections_.push_back(std::move(connection));
}

bool MpsControl::Serve(int connection) {
  char bytes[4096];
  const ssize_t length = ReceivePacket(connection, std::as_writable_bytes(std::span(bytes)));
  if (length <= 0) return false;
  const std::string line(bytes, static_cast<std::size_t>(length));
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  std::string answer;
  if (line == kConnectRequest) {
    answer = Connect(peer);
  } else if (peer.uid != geteuid() && peer.uid != 0) {
    answer = "only the daemon's own user and root may give it commands\n";
  } else {
    answer = Answer(line);
  }
  if (quitting_ && line.starts_with("quit")) return true;  // the end of the daemon is the answer
  answer.resize(std::min<std::size_t>(answer.size(), kMostAnswerBytes - 1));
  answer += '\0';  // a packet of no bytes is the end of a connection
  return SendPacket(connection, std::as_bytes(std::span(answer)));
}

std::string MpsControl::Connect(const ucred& client) {
  const std::string who =
      "NEW CLIENT " + std::to_string(client.pid) + " from user " + std::to_string(client.uid) + ": ";
  const auto refused = [&](cuda::CUresult result, const std::string& why) {
    log_.Write(who + why);
    return "refused " + std::to_string(result);
  };
  if (quitting_) return refused(cuda::CUDA_ERROR_MPS_SERVER_NOT_READY, "the daemon quits");
  const auto server = ServerFor(client.uid);
  if (!server) {
    const bool later = server.error().code == EAGAIN;
    return refused(later ? cuda::CUDA_ERROR_MPS_SERVER_NOT_READY : cuda::CUDA_ERROR_MPS_CONNECTION_FAILED,
                   server.error().Text());
  }
  const ProcessId& process = (*server)->process.process();
  log_.Write(who + "server " + std::to_string((*server)->process.pid()));
  server_log_.Write("New client " + std::to_string(client.pid) + " connected");
  return "server " + std::to_string(process.pid) + " " + std::to_string(process.pid_namespace) + " " +
         std::to_string(process.start_time);
}

std::string MpsControl::Answer(const std::string& line) {
  log_.Write("NEW UI command: " + line);
  std::istringstream text(line);
  Words words;
  for (std::string word; text >> word;) words.push_back(word);
  if (words.empty()) return "";
  const auto command = std::ranges::find(kCommands, words[0], &Command::name);
  if (command == std::end(kCommands)) {
    std::string known;
    for (const Command& each : kCommands) known += std::string(known.empty() ? "" : ", ") + each.name;
    return "there is no command '" + words[0] + "': use one of " + known + "\n";
  }
  words.erase(words.begin());
  if (words.size() < command->least || words.size() > command->most) {
    return std::string("usage: ") + command->name + " " + command->arguments + "\n";
  }
  return (this->*command->answer)(words);
}

void MpsControl::Tend() {
  const bool overdue = quit_by_ && MonotonicNow() >= *quit_by_;
  for (Server& server : servers_) {
    if (server.process.Ended()) continue;
    Watch(server);
    const auto clients = MpsClientsOf(state_, server.process.pid());
    if (overdue || (server.draining && clients && clients->empty())) server.process.Stop();
  }
  std::erase_if(servers_, [&](Server& server) {
    if (!server.process.Ended()) return false;
    log_.Write("Server " + std::to_string(server.process.process().pid) + " exited");
    return true;
  });
}

void MpsControl::Watch(Server& server) {
  const auto now = LookAtMpsServer(state_, server.process.pid());
  if (!now) return;
  const bool faulted = now->state == MpsServerState::kFault;
  if (faulted == server.faulted) return;
  server.faulted = faulted;
  server_log_.Write(faulted ? "Client " + std::to_string(now->culprit) +
                                  " had a fatal fault: all clients of the server end, and it takes new ones after that"
                            : "Takes clients again after a fatal fault");
}

Result<MpsControl::Server*> MpsControl::ServerFor(uid_t user) {
  Tend();
  if (!servers_.empty()) {
    Server& server = servers_.back();
    if (!server.draining && server.process.user() != user) Drain(server);
    Tend();
    if (!servers_.empty() && !servers_.back().draining) return &servers_.back();
    if (!servers_.empty()) return Fail(EAGAIN, "another MPS server still ends", "try again when its clients are gone");
  }
  log_.Write("Starting new server for user " + std::to_string(user));
  auto process = MpsServerProcess::Start(user, percentage_, server_log_);
  if (!process) return std::unexpected(process.error());
  servers_.push_back({.process = std::move(*process)});
  log_.Write("Server " + std::to_string(servers_.back().process.pid()) + " ready");
  return &servers_.back();
}

Result<MpsControl::Server*> MpsControl::Find(const std::string& pid) {
  Tend();
  const auto found = std::ranges::find_if(
      servers_, [&](const Server& server) { return ParseNumber<pid_t>(pid) == server.process.pid(); });
  if (found == servers_.end()) return Fail(ESRCH, "there is no server " + pid, "see get_server_list");
  return &*found;
}

void MpsControl::Drain(Server& server) {
  server.draining = true;
  static_cast<void>(DrainMpsServer(state_, server.process.pid()));  // one that has ended takes no clients either
}

std::string MpsControl::StartServer(const Words& arguments) {
  const auto user = ParseNumber<int>(arguments[1]);
  if (arguments[0] != "-uid" || !user) return "usage: start_server -uid UID\n";
  const auto server = ServerFor(static_cast<uid_t>(*user));
  return server ? "" : Refusal(server.error());
}

std::string MpsControl::ServerList(const Words&) {
  Tend();
  std::vector<pid_t> pids;
  for (const Server& server : servers_) pids.push_back(server.process.pid());
  return Lines(pids);
}

std::string MpsControl::ServerStatus(const Words& arguments) {
  const auto server = Find(arguments[0]);
  if (!server) return Refusal(server.error());
  const auto now = LookAtMpsServer(state_, (*server)->process.pid());
  if (!now) return Refusal(now.error());
  return now->state == MpsServerState::kFault ? "FAULT\n" : "ACTIVE\n";
}

std::string MpsControl::ClientList(const Words& arguments) {
  const auto server = Find(arguments[0]);
  if (!server) return Refusal(server.error());
  const auto clients = MpsClientsOf(state_, (*server)->process.pid());
  return clients ? Lines(*clients) : Refusal(clients.error());
}

std::string MpsControl::DeviceClientList(const Words& arguments) {
  Tend();
  std::vector<pid_t> servers;
  for (const Server& server : servers_) {
    const pid_t pid = server.process.pid();
    if (arguments.empty() || ParseNumber<pid_t>(arguments[0]) == pid) servers.push_back(pid);
  }
  std::string text;
  for (int device = 0; device < state_.spec().devices; ++device) {
    std::string clients;
    for (const pid_t server : servers) {
      for (const pid_t pid : MpsClientsOf(state_, server, device).value_or(std::vector<pid_t>())) {
        clients += " " + std::to_string(pid);
      }
    }
    if (!clients.empty()) text += FormatUuid(state_.Uuid(device)) + clients + "\n";
  }
  return text;
}

std::string MpsControl::SetDefaultPercentage(const Words& arguments) {
  const auto percentage = ParseMpsPercentage(arguments[0]);
  if (!percentage) return kBadPercentage;
  percentage_ = *percentage;
  return FormatPercentage(percentage_);
}

std::string MpsControl::DefaultPercentage(const Words&) { return FormatPercentage(percentage_); }

std::string MpsControl::SetPercentage(const Words& arguments) {
  const auto percentage = ParseMpsPercentage(arguments[1]);
  if (!percentage) return kBadPercentage;
  const auto server = Find(arguments[0]);
  if (!server) return Refusal(server.error());
  const auto set = SetMpsPercentage(state_, (*server)->process.pid(), *percentage);
  return set ? FormatPercentage(*percentage) : Refusal(set.error());
}

std::string MpsControl::Percentage(const Words& arguments) {
  const auto server = Find(arguments[0]);
  if (!server) return Refusal(server.error());
  const auto now = LookAtMpsServer(state_, (*server)->process.pid());
  return now ? FormatPercentage(now->percentage) : Refusal(now.error());
}

// As NVIDIA's, it ends its answer with 0 or 1.
std::string MpsControl::TerminateClient(const Words& arguments) {
  const auto server = Find(arguments[0]);
  if (!server) return Refusal(server.error()) + "1\n";
  const auto client = ParseNumber<pid_t>(arguments[1]);
  if (!client) return "usage: terminate_client SERVER_PID CLIENT_PID\n";
  const auto ended = TerminateMpsClient(state_, (*server)->process.pid(), *client);
  if (!ended) return Refusal(ended.error()) + "1\n";
  server_log_.Write("Client " + arguments[1] + " terminated by command");
  return "0\n";
}

std::string MpsControl::ShutdownServer(const Words& arguments) {
  const bool forced = arguments.size() == 2;
  if (forced && arguments[1] != "-f") return "usage: shutdown_server PID [-f]\n";
  const auto server = Find(arguments[0]);
  if (!server) return Refusal(server.error());
  Drain(**server);
  if (forced) (*server)->process.Stop();
  return "";
}

std::string MpsControl::Quit(const Words& arguments) {
  std::optional<int> seconds;
  if (!arguments.empty()) {
    if (arguments.size() == 2 && arguments[0] == "-t") seconds = ParseNumber<int>(arguments[1]);
    if (!seconds) return "usage: quit [-t SECONDS]\n";
    quit_by_ = MonotonicNow() + *seconds * kSecond;
  }
  quitting_ = true;
  for (Server& server : servers_) Drain(server);
  return "";
}

}  // namespace tessera::soft
