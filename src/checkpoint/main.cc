// tessera-checkpoint: takes programs off their GPUs and puts them on GPUs again by the driver's checkpoint calls, for
// the daemon, which has no CUDA, and which a call must not hold up.
//
// usage: tessera-checkpoint [--soft] [--driver PATH]
//
// Descriptor 3 is a socket to the daemon (wire/checkpoint.h). When it is closed, the program finishes the call that it
// is in, and ends. --soft takes the soft GPU, --driver the library at PATH, both unless TESSERA_REAL_LIBCUDA names one.
// Exits 0 when the daemon has closed its end, 1 if it cannot work, 2 if it was called wrongly.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/install/environment.h"
#include "base/seqpacket.h"
#include "base/unique_fd.h"
#include "checkpoint/checkpoint_calls.h"
#include "cuda/own_driver.h"

namespace tessera::checkpoint {
namespace {

constexpr int kDaemonFd = 3;

struct Options {
  std::string driver;
  bool soft = false;
};

bool ParseOptions(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--soft") {
      options.soft = true;
    } else if (argument == "--driver" && i + 1 < count) {
      options.driver = arguments[++i];
    } else {
      return false;
    }
  }
  return true;
}

// A terminal's signals are for other programs: the daemon decides when this one ends.
void SettleSurroundings() {
  ForgetOtherPrograms();
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  (void)fcntl(kDaemonFd, F_SETFD, FD_CLOEXEC);  // the driver may run nvidia-modprobe
}

// A reader of the daemon's output must see its end when the daemon ends, and not when a call does.
void LetGoOfOutput() {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {0, 1, 2}) dup2(null.Get(), fd);
}

void ReportFailure(const Error& error) {
  wire::CheckpointAnswer answer = {.type = wire::CheckpointAnswerType::kFailed, .error = error.code};
  const std::string text = error.Text();
  text.copy(answer.text, sizeof answer.text - 1);
  (void)SendPacket(kDaemonFd, BytesOf(answer));
  std::fprintf(stderr, "tessera-checkpoint: %s\n", text.c_str());
}

// Whether the daemon heard it. A program would stay locked if nobody knew that it is.
bool Tell(const wire::CheckpointAnswer& answer, const CheckpointCalls& calls) {
  if (SendPacket(kDaemonFd, BytesOf(answer))) return true;
  if (answer.operation == wire::CheckpointOperation::kLock && answer.result == cuda::CUDA_SUCCESS)
    (void)calls.Do({.operation = wire::CheckpointOperation::kUnlock, .pid = answer.pid});
  return false;
}

// Until the daemon closes its end, or says what no daemon says.
int Serve(const CheckpointCalls& calls) {
  bool told = SendPacket(kDaemonFd, BytesOf(wire::CheckpointAnswer{.type = wire::CheckpointAnswerType::kReady}));
  while (told) {
    alignas(8) std::array<std::byte, sizeof(wire::CheckpointRequest)> packet;
    const ssize_t length = ReceivePacket(kDaemonFd, packet);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) break;
    const auto request = wire::ReadCheckpointRequest(std::span(packet).first(static_cast<std::size_t>(length)));
    if (!request) return 1;
    told = Tell(calls.Do(*request), calls);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::checkpoint

int main(int count, char** arguments) {
  using namespace tessera::checkpoint;
  Options options;
  if (!ParseOptions(count, arguments, options)) {
    std::fputs("usage: tessera-checkpoint [--soft] [--driver PATH]\n", stderr);
    return 2;
  }
  SettleSurroundings();
  const auto calls = CheckpointCalls::Load(tessera::cuda::OwnDriver(options.driver, options.soft));
  if (!calls) {
    ReportFailure(calls.error());
    _exit(1);
  }
  LetGoOfOutput();
  _exit(Serve(*calls));  // the driver's own end might wait for something
}
