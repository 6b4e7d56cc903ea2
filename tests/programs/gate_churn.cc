// A program behind the kernel gate that allocates and frees GPU memory all the time, by ioctls as NVIDIA's libraries
// make them. Its driver is a memfd (guard::SoftBoundary).
//
// usage: gate_churn PIECES [patient | listener SOCKET]
//
// It may have PIECES pieces of 2 MiB at once, and checks in each round that it gets these and not one more. Prints the
// number of finished rounds after each. Ends when stdin has something to read or is closed: 0, or 1 after a line that
// says what went wrong. A patient one tries a call again that fails with ENOSYS, and prints "no daemon". With a
// listener, it puts itself behind a filter and sends the listener by this socket.
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/seqpacket.h"
#include "channel/rm/driver_abi.h"
#include "guard/gate/soft_boundary.h"
#include "guard/supervisor/filter.h"

namespace {

namespace abi = tessera::channel::abi;

constexpr std::uint32_t kDevice = 0x5c000001;

// RM's clients have numbers of their own. $GATE_CHURN_CLIENT is one that programs share, as if they shared a file.
std::uint32_t ClientNumber() {
  const char* shared = std::getenv("GATE_CHURN_CLIENT");
  return 0xc1d00000 | (shared ? static_cast<std::uint32_t>(std::atoi(shared)) : getpid() & 0xfffffU);
}

class Driver {
 public:
  explicit Driver(bool patient) : patient_(patient) {}

  std::uint32_t MakeDevice() {
    abi::DeviceParams params{};
    return Alloc(client_, kDevice, abi::kDevice, &params, sizeof params);
  }
  std::uint32_t MakeMemory(std::uint32_t handle) {
    abi::MemoryParams params{};
    params.size = tessera::guard::SoftBoundary::kGranularity;
    return Alloc(kDevice, handle, abi::kMemoryLocal, &params, sizeof params);
  }
  std::uint32_t Free(std::uint32_t handle) {
    abi::Free free{.root = client_, .parent = kDevice, .object = handle, .status = 0xffff};
    return Ask(abi::kFree, free);
  }

 private:
  std::uint32_t Alloc(std::uint32_t parent, std::uint32_t handle, std::uint32_t cls, void* params,
                      std::uint32_t params_bytes) {
    abi::Alloc alloc{.root = client_,
                     .parent = parent,
                     .object = handle,
                     .cls = cls,
                     .params = reinterpret_cast<std::uint64_t>(params),
                     .rights = 0,
                     .params_bytes = params_bytes,
                     .flags = 0,
                     .status = 0xffff,
                     .reserved = 0};
    return Ask(abi::kAlloc, alloc);
  }

  template <typename Argument>
  std::uint32_t Ask(unsigned number, Argument& argument) {
    while (ioctl(file_, _IOC(_IOC_READ | _IOC_WRITE, 'F', number, sizeof argument), &argument) != 0) {
      if (!patient_ || errno != ENOSYS) {
        std::printf("request 0x%x: %s\n", number, std::strerror(errno));
        std::exit(1);
      }
      std::puts("no daemon");
      usleep(10'000);
    }
    return argument.status;
  }

  const std::uint32_t client_ = ClientNumber();
  const bool patient_;
  const int file_ = tessera::guard::SoftBoundary::Open();
};

void Expect(std::uint32_t status, std::uint32_t expected, long round, const char* what) {
  if (status == expected) return;
  std::printf("round %ld, %s: status 0x%x\n", round, what, status);
  std::exit(1);
}

}  // namespace

int main(int count, char** arguments) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto pieces = static_cast<std::uint32_t>(count > 1 ? std::atoi(arguments[1]) : 1);
  const bool guards = count > 3;
  if (guards) {
    const auto listener = tessera::guard::InstallFilter();
    const std::byte byte{};
    if (!listener || !tessera::SendPacket(std::atoi(arguments[3]), std::span(&byte, 1), listener->Get())) return 1;
  }
  Driver driver(count > 2 && !guards);
  Expect(driver.MakeDevice(), abi::kOk, 0, "device");
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  for (long round = 1; poll(&input, 1, 0) == 0; ++round) {
    for (std::uint32_t i = 0; i < pieces; ++i) Expect(driver.MakeMemory(100 + i), abi::kOk, round, "a piece");
    Expect(driver.MakeMemory(99), abi::kNoMemory, round, "one piece too many");
    for (std::uint32_t i = 0; i < pieces; ++i) Expect(driver.Free(100 + i), abi::kOk, round, "a free");
    std::printf("%ld\n", round);
    usleep(1000);
  }
  return 0;
}
