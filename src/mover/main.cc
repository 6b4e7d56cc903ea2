// tessera-mover: moves programs' GPU memory to host memory and back, for the daemon, which starts one for each GPU.
//
// usage: tessera-mover --gpu UUID [--soft] [--driver PATH] [--floor BYTES] [--file]
//
// Descriptor 3 is a socket to the daemon (wire/mover.h); the mover ends when it is closed. Descriptor 4 is the table of
// the swap pool (key_table.h). --soft takes the soft GPU, --driver the library at PATH, both unless
// TESSERA_REAL_LIBCUDA names one. --floor is the memory of the host that the swap pool leaves free. --file: descriptors
// 5 and 6 are the swap file and its table. Exits 0 when the daemon has closed its end, 1 if it cannot work, 2 if it was
// called wrongly.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/descriptor.h"
#include "base/install/environment.h"
#include "base/seqpacket.h"
#include "base/size.h"
#include "cuda/own_driver.h"
#include "mover/gpu/cuda_gpu.h"
#include "mover/mover.h"
#include "mover/pool/free_memory.h"

namespace tessera::mover {
namespace {

constexpr int kDaemonFd = 3, kSlotsFd = 4, kFileFd = 5, kFileTableFd = 6;

UniqueFd Inherited(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

struct Options {
  std::string gpu;
  std::string driver;
  bool soft = false;
  bool file = false;
  std::uint64_t floor = DefaultFloor();
};

bool ParseOptions(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--soft") {
      options.soft = true;
      continue;
    }
    if (argument == "--file") {
      options.file = true;
      continue;
    }
    if (i + 1 == count) return false;
    const std::string value = arguments[++i];
    if (argument == "--gpu") {
      options.gpu = value;
    } else if (argument == "--driver") {
      options.driver = value;
    } else if (argument == "--floor") {
      const auto bytes = ParseSize(value);
      if (!bytes) return false;
      options.floor = *bytes;
    } else {
      return false;
    }
  }
  return !options.gpu.empty();
}

// The environment's wishes about GPUs, and a terminal's signals, are for other programs. The daemon decides when the
// mover ends.
void SettleSurroundings(const Options& options) {
  ForgetOtherPrograms();
  setenv("CUDA_VISIBLE_DEVICES", options.gpu.c_str(), 1);
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  prctl(PR_SET_TIMERSLACK, 1000);  // ns; the loop sleeps for 50 us at a time
  RaiseDescriptorLimit();          // each slot of the pool has one, and so has each chunk on its way
}

// A reader of the daemon's output must see its end when the daemon ends, and not when the mover does.
void LetGoOfOutput() {
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {0, 1, 2}) dup2(null.Get(), fd);
}

Result<void> Work(const Options& options) {
  static const auto cuda = CudaLibrary::Load(cuda::OwnDriver(options.driver, options.soft));
  if (!cuda) return std::unexpected(cuda.error());
  auto gpu = CudaGpu::Open(*cuda, options.gpu);
  if (!gpu) return std::unexpected(gpu.error());
  const auto machine = [floor = options.floor] {
    return MachineMemory{.free = FreeMemory(), .floor = floor, .pressure = MemoryPressure()};
  };
  auto slots = KeyTable::Open(Inherited(kSlotsFd));
  if (!slots) return std::unexpected(slots.error());
  std::optional<SwapFile> file;
  if (options.file) {
    auto opened = SwapFile::Open(Inherited(kFileFd), Inherited(kFileTableFd));
    if (!opened) return std::unexpected(opened.error());
    file.emplace(std::move(*opened));
  }
  // Neither the mover nor the driver is ever destroyed: either might wait for work under way. The kernel frees all.
  auto& mover = *new Mover(*gpu->release(), Inherited(kDaemonFd), machine, std::move(*slots), std::move(file));
  const auto ran = mover.Run();
  if (!ran) return ran;
  LetGoOfOutput();
  mover.Retire();
  return {};
}

void ReportFailure(const Error& error) {
  wire::MoverMessage message = {.type = wire::MoverType::kFailed, .error = error.code};
  const std::string text = error.Text();
  text.copy(message.text, sizeof message.text - 1);
  (void)SendPacket(kDaemonFd, BytesOf(message));  // the daemon also sees the end of the socket
  std::fprintf(stderr, "tessera-mover: %s\n", text.c_str());
}

}  // namespace
}  // namespace tessera::mover

int main(int count, char** arguments) {
  using namespace tessera::mover;
  Options options;
  if (!ParseOptions(count, arguments, options)) {
    std::fputs("usage: tessera-mover --gpu UUID [--soft] [--driver PATH] [--floor BYTES] [--file]\n", stderr);
    return 2;
  }
  SettleSurroundings(options);
  const auto worked = Work(options);
  if (!worked) ReportFailure(worked.error());
  _exit(worked ? 0 : 1);
}
