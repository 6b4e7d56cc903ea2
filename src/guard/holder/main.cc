// tessera-gate-holder: keeps the seccomp listeners of programs behind the kernel gate while there is no daemon
// (gate_holder.h). A daemon starts it with its first such program.
//
// usage: tessera-gate-holder PATH
//
// Descriptor 3 is the listening socket whose name is PATH. Ends by itself when neither a daemon nor a program needs it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "base/descriptor.h"
#include "guard/holder/gate_holder.h"

namespace {

constexpr int kListenerFd = 3;

// This process outlives what ends the daemon: a Ctrl-C, a closed terminal. A reader of the daemon's output must see its
// end when the daemon ends. A folder that is in use cannot be unmounted.
void SettleSurroundings() {
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  if (const int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  }
  static_cast<void>(chdir("/"));
  tessera::RaiseDescriptorLimit();  // two for each program
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: tessera-gate-holder PATH\n", stderr);
    return 2;
  }
  SettleSurroundings();
  tessera::guard::GateHolder(tessera::UniqueFd(fcntl(kListenerFd, F_DUPFD_CLOEXEC, 0)), arguments[1]).Run();
  return 0;
}
