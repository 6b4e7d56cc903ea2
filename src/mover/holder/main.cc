// tessera-swap-holder: holds the swap pool of a GPU, so that what programs have there outlives daemon and mover
// (swap_holder.h). A daemon starts it before the GPU's first mover.
//
// usage: tessera-swap-holder PATH
//
// Descriptor 3 is the listening socket whose name is PATH. Ends by itself when neither a daemon nor a program needs it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "base/descriptor.h"
#include "base/unique_fd.h"
#include "mover/holder/swap_holder.h"

namespace {

constexpr int kListenerFd = 3;

// This process outlives what ends the daemon: a Ctrl-C, a closed terminal, a signal to its process group. A reader of
// the daemon's output must see its end when the daemon ends. A folder that is in use cannot be unmounted.
void SettleSurroundings() {
  setsid();
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  if (const tessera::UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC)); null) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.Get(), fd);
  }
  static_cast<void>(chdir("/"));
  tessera::RaiseDescriptorLimit();  // one for each slot of the pool
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fputs("usage: tessera-swap-holder PATH\n", stderr);
    return 2;
  }
  SettleSurroundings();
  tessera::mover::SwapHolder(tessera::UniqueFd(kListenerFd), arguments[1]).Run();
  return 0;
}
