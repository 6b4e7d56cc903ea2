#include "server/spaces/mps_commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

namespace tessera::server {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;  // of an answer; the rest is dropped
constexpr std::size_t kMostShown = 200;       // of it in a message

struct Pipe {
  UniqueFd reading, writing;
};

Result<Pipe> MakePipe() {
  int ends[2] = {};
  if (pipe2(ends, O_CLOEXEC) != 0) return FailErrno("cannot make a pipe to the MPS control daemon");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Waits until the file can be read, or has ended; false if that takes too long.
bool Readable(int file, Nanos until) {
  for (;;) {
    pollfd waiting = {.fd = file, .events = POLLIN, .revents = 0};
    const Nanos left = until - MonotonicNow();
    const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(left / kMillisecond) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0;
  }
}

// All that is written there until it is closed; ETIMEDOUT if that takes too long.
Result<std::string> ReadToEnd(int file, Nanos until) {
  std::string text;
  for (;;) {
    if (!Readable(file, until)) return Fail(ETIMEDOUT, "no answer in time");
    char bytes[4096];
    const ssize_t length = read(file, bytes, sizeof bytes);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return FailErrno("cannot read its answer");
    if (length == 0) return text;
    if (text.size() < kMostBytes) text.append(bytes, static_cast<std::size_t>(length));
  }
}

// Whether the program ended well. One that has not ended by then is killed: its user may have stopped it.
bool EndsWell(pid_t pid, Nanos until) {
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd || !Readable(pidfd.Get(), until)) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The program's status says nothing: what was refused ends with 1 as the last line (driver 580.159.04).
constexpr std::string_view kDone = "0";

std::string_view LastLine(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}

// The answer for a message. The control daemon is the user's own, and messages are for operators' terminals: nothing in
// it that a terminal would act on, and not much of it.
std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() > kMostShown) text.resize(kMostShown);
  for (char& each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (each == '\n') each = ' ';
    if (byte < 0x20 || byte >= 0x7f) each = each == ' ' ? ' ' : '?';
  }
  return text;
}

Result<std::vector<pid_t>> Pids(const Result<std::string>& answer) {
  if (!answer) return std::unexpected(answer.error());
  std::vector<pid_t> pids;
  std::istringstream words(*answer);
  for (std::string word; words >> word;) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), pid);
    if (error != std::errc() || end != word.data() + word.size() || pid <= 0) {
      return Fail(EPROTO, "unexpected answer of the MPS control daemon: " + OneLine(*answer));
    }
    pids.push_back(pid);
  }
  return pids;
}

}  // namespace

OwnProgram MpsPlace::Program(std::vector<std::string> arguments) const {
  std::vector<std::string> variables = {"CUDA_MPS_PIPE_DIRECTORY=" + pipes, "CUDA_MPS_LOG_DIRECTORY=" + logs};
  if (!gpu.empty()) variables.push_back("CUDA_VISIBLE_DEVICES=" + gpu);
  return {.name = program, .arguments = std::move(arguments), .with = std::move(variables), .user = user};
}

Result<std::string> MpsCommands::Tell(const std::string& line) const {
  auto input = MakePipe();
  if (!input) return std::unexpected(input.error());
  auto output = MakePipe();
  if (!output) return std::unexpected(output.error());
  // It fits into a pipe, whoever reads, and nobody has to.
  const std::string text = line + "\n";
  if (write(input->writing.Get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FailErrno("cannot write to the MPS control daemon");
  }
  input->writing.Reset();
  OwnProgram program = place_.Program();
  program.files = {{input->reading.Get(), STDIN_FILENO},
                   {output->writing.Get(), STDOUT_FILENO},
                   {output->writing.Get(), STDERR_FILENO}};
  const auto pid = Spawn(program);
  if (!pid) return std::unexpected(pid.error());
  output->writing.Reset();
  const Nanos until = MonotonicNow() + patience_;
  const auto answer = ReadToEnd(output->reading.Get(), until);
  if (!answer) kill(*pid, SIGKILL);
  const bool done = EndsWell(*pid, until);
  if (!answer) {
    return Fail(answer.error().code, fmt::format("MPS command '{}': {}", line, answer.error().message));
  }
  if (done) return *answer;
  return Fail(ESRCH, fmt::format("MPS command '{}' failed: {}", line, OneLine(*answer)));
}

Result<std::vector<pid_t>> MpsCommands::Servers() const { return Pids(Tell("get_server_list")); }

Result<void> MpsCommands::StartServer(uid_t user) const {
  const auto answer = Tell(fmt::format("start_server -uid {}", user));
  if (!answer) return std::unexpected(answer.error());
  return {};
}

Result<bool> MpsCommands::HasFaulted(pid_t server) const {
  const auto answer = Tell(fmt::format("get_server_status {}", server));
  if (!answer) return std::unexpected(answer.error());
  return answer->starts_with("FAULT");
}

Result<void> MpsCommands::ShutDown(pid_t server) const {
  const auto answer = Tell(fmt::format("shutdown_server {} -f", server));
  if (!answer) return std::unexpected(answer.error());
  return {};
}

Result<std::vector<pid_t>> MpsCommands::Clients(pid_t server) const {
  return Pids(Tell(fmt::format("get_client_list {}", server)));
}

Result<void> MpsCommands::Terminate(pid_t server, pid_t client) const {
  const auto answer = Tell(fmt::format("terminate_client {} {}", server, client));
  if (!answer) return std::unexpected(answer.error());
  if (LastLine(*answer) == kDone) return {};
  const auto clients = Clients(server);
  if (!clients) return std::unexpected(clients.error());
  if (std::ranges::find(*clients, client) == clients->end()) return {};
  return Fail(EBUSY, fmt::format("MPS does not terminate client {}: {}", client, OneLine(*answer)));
}

Result<void> MpsCommands::Quit() const {
  const auto answer = Tell("quit -t 0");
  if (!answer) return std::unexpected(answer.error());
  return {};
}

}  // namespace tessera::server
