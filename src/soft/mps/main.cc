// tessera-soft-mps-control: what nvidia-cuda-mps-control is to NVIDIA's GPUs, for the soft ones. Its directory has to
// be named by CUDA_MPS_PIPE_DIRECTORY; CUDA_MPS_LOG_DIRECTORY is that one unless it is set.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <span>
#include <string>

#include "base/seqpacket.h"
#include "soft/mps/mps_control.h"
#include "soft/mps/mps_directory.h"

namespace tessera::soft {
namespace {

int Say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return 1;
}

std::string Variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// Commands of standard input, one a line, to the daemon of `pipes`. 1 if there is none.
int FrontEnd(const std::string& pipes) {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    const UniqueFd daemon = ConnectSeqpacket(MpsSocketIn(pipes).c_str());
    if (!daemon) return Say("Cannot find MPS control daemon process");
    std::string answer(kMostAnswerBytes, '\0');
    if (!SendPacket(daemon.Get(), std::as_bytes(std::span(line)))) return Say("Cannot find MPS control daemon process");
    const ssize_t length = ReceivePacket(daemon.Get(), std::as_writable_bytes(std::span(answer)));
    if (length > 0) std::fputs(answer.c_str(), stdout);
    std::fflush(stdout);
  }
  return 0;
}

int Daemon(const std::string& pipes, bool background) {
  const std::string logs = Variable(kMpsLogVariable, pipes);
  for (const std::string& folder : {pipes, logs}) {
    if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
      return Say("cannot make " + folder + ": " + std::strerror(errno));
    }
  }
  const UniqueFd lock(open((pipes + "/control_lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return Say("cannot write in " + pipes + ": " + std::strerror(errno));
  if (flock(lock.Get(), LOCK_EX | LOCK_NB) != 0) return Say("An instance of this daemon is already running");
  // Whoever started it finds the socket there as soon as it returns.
  UniqueFd listener = ListenSeqpacket(MpsSocketIn(pipes).c_str(), SOMAXCONN);
  if (!listener) return Say("cannot listen at " + MpsSocketIn(pipes) + ": " + std::strerror(errno));
  chmod(MpsSocketIn(pipes).c_str(), 0666);
  if (background) {
    const pid_t child = fork();
    if (child != 0) _exit(child < 0 ? Say("cannot start the daemon") : 0);
    setsid();
    const UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing.Get(), standard);
  }
  signal(SIGPIPE, SIG_IGN);
  auto state = SharedState::Attach(SharedState::DefaultPath(), Variable("TESSERA_SOFT", ""));
  if (!state) return Say("tessera " + state.error().Text());
  const std::string percentage = Variable(kMpsPercentageVariable, "100");
  MpsControl control(**state, std::move(listener), ParseMpsPercentage(percentage).value_or(100), logs);
  control.Run();
  // Before the connections end: who waits for the end of the daemon finds nothing there any more.
  unlink(MpsSocketIn(pipes).c_str());
  return 0;
}

}  // namespace
}  // namespace tessera::soft

int main(int count, char** arguments) {
  using namespace tessera::soft;
  const std::string option = count > 1 ? arguments[1] : "";
  if (count > 2 || (count == 2 && option != "-d" && option != "-f")) {
    return Say(std::string("usage: ") + arguments[0] +
               " [-d | -f]\n-d: be the daemon, in the background; -f: in the foreground; without an option, commands "
               "of standard input go to the daemon");
  }
  const std::string pipes = Variable(kMpsPipeVariable, "");
  if (pipes.empty()) return Say(std::string("set ") + kMpsPipeVariable + " to the daemon's directory");
  return count == 1 ? FrontEnd(pipes) : Daemon(pipes, option == "-d");
}
