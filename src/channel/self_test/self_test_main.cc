// tessera-channel-test: whether channel control works here (self_test.h). It freezes only itself.
//
// usage: tessera-channel-test [--gpu UUID] [--soft]
//
// Prints one line of JSON and exits 0, 1 if the test fails, 2 if there is no GPU. Without --gpu it takes the first GPU
// that CUDA knows. --soft takes the soft GPU, as TESSERA_REAL_LIBCUDA does if it names the soft driver.
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/install/environment.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "channel/control/nvidia_control.h"
#include "channel/control/soft_control.h"
#include "channel/rm/ioctl_event.h"
#include "channel/rm/object_table.h"
#include "channel/self_test/control_check.h"
#include "channel/self_test/counting_kernel.h"
#include "channel/self_test/cuda_library.h"
#include "channel/self_test/self_test.h"
#include "soft/shared/soft_gpu.h"

namespace tessera::channel {
namespace {

// ---- what the driver's library does in this process ----

struct Objects {
  Mutex mutex;
  ObjectTable table TESSERA_GUARDED_BY(mutex);
};

Objects& OwnObjects() {
  static auto* objects = new Objects;  // the driver's threads may call ioctl until the very end
  return *objects;
}

// ---- what is under way, for whoever reads the outcome ----

const char* volatile step = "gpu";

// The driver may hang, and nobody is to wait for it for ever.
void TooLong(int /*signal*/) {
  constexpr char kBegin[] = R"({"ok":false,"step":")", kEnd[] = "\",\"why\":\"it does not end\"}\n";
  const char* at = step;
  const bool written = write(STDOUT_FILENO, kBegin, sizeof kBegin - 1) > 0 &&
                       write(STDOUT_FILENO, at, std::strlen(at)) > 0 && write(STDOUT_FILENO, kEnd, sizeof kEnd - 1) > 0;
  _exit(written ? 1 : 3);
}

// ---- the test ----

struct Options {
  std::string uuid;
  bool soft = false;
};

// The device of a UUID, or the first.
struct Device {
  cuda::CUdevice device = 0;
  std::array<char, 16> uuid = {};
  bool soft = false;
};

Result<Device> FindDevice(const CudaLibrary& cuda, const std::string& wanted) {
  if (const auto ready = CheckCuda(cuda.Init(0), "cuInit"); !ready) return std::unexpected(ready.error());
  int count = 0;
  if (const auto counted = CheckCuda(cuda.DeviceGetCount(&count), "cuDeviceGetCount"); !counted) {
    return std::unexpected(counted.error());
  }
  for (int i = 0; i < count; ++i) {
    Device found;
    cuda::CUuuid uuid;
    char name[128] = {};
    if (cuda.DeviceGet(&found.device, i) != cuda::CUDA_SUCCESS ||
        cuda.DeviceGetUuid(&uuid, found.device) != cuda::CUDA_SUCCESS ||
        cuda.DeviceGetName(name, sizeof name, found.device) != cuda::CUDA_SUCCESS) {
      continue;
    }
    std::ranges::copy(uuid.bytes, found.uuid.begin());
    found.soft = std::string_view(name) == soft::kDeviceName;
    if (wanted.empty() || soft::FormatUuid(found.uuid) == wanted) return found;
  }
  return Fail(ENODEV, wanted.empty() ? "CUDA knows no GPU" : "CUDA knows no " + wanted);
}

// Control of the device, and its number there.
struct Steering {
  std::unique_ptr<Control> control;
  std::uint32_t gpu = 0;
};

Result<Steering> OpenSteering(const Device& device) {
  if (!device.soft) {
    GpuUuid uuid;
    std::ranges::copy(device.uuid, uuid.begin());
    auto control = OpenNvidiaControl({uuid});
    if (!control) return std::unexpected(control.error());
    return Steering{std::move(*control), 0};
  }
  auto state = soft::SharedState::Attach(soft::SharedState::DefaultPath(), "");
  if (!state) return std::unexpected(state.error());
  int index = 0;
  while (index < (*state)->spec().devices && (*state)->Uuid(index) != device.uuid) ++index;
  return Steering{MakeSoftControl(std::move(*state)), static_cast<std::uint32_t>(index)};
}

std::vector<Group> OwnGroups(std::uint32_t device_instance) {
  Objects& objects = OwnObjects();
  MutexLock lock(objects.mutex);
  return objects.table.Groups(device_instance);
}

std::string VersionOfDriver() {
  std::ifstream file("/proc/driver/nvidia/version");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string version = DriverVersion(text);
  return version.empty() ? "unknown" : version;
}

Result<SelfTest> TestDevice(const CudaLibrary& cuda, const Device& device) {
  step = "control";
  auto steering = OpenSteering(device);
  if (!steering) return std::unexpected(steering.error());
  step = "context";
  auto kernel = CountingKernel::Start(cuda, device.device);
  if (!kernel) return std::unexpected(kernel.error());
  step = "channels";
  const UniqueFd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!self) return FailErrno("pidfd_open");
  Target target = {.pid = getpid(), .process_fd = self.Get()};
  if (!device.soft) target.groups = OwnGroups(steering->control->DeviceInstance(steering->gpu));
  const bool found = std::ranges::any_of(target.groups, [](const Group& group) { return !group.channels.empty(); });
  if (!found && !device.soft)
    return Fail(EIO, "the channels of the CUDA context cannot be seen; is it a client of MPS?");

  // Writes that were on their way over the bus when the channels were disabled arrive first; the soft GPU ends a step.
  const Progress progress = {.count = [&] { return kernel->Count(); },
                             .sleep = [](Nanos time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time)); },
                             .settle = device.soft ? 100 * kMillisecond : kMillisecond};
  auto result =
      CheckControl(*steering->control, steering->gpu, target, progress, [](const char* next) { step = next; });
  if (!result) return result;
  step = "end";
  if (const auto ended = kernel->End(); !ended) return std::unexpected(ended.error());
  result->driver = device.soft ? "soft" : VersionOfDriver();
  return result;
}

// Variables that choose GPUs, and how to use them, are meant for other programs.
void SettleEnvironment(const Options& options) {
  ForgetOtherPrograms();
  if (!options.uuid.empty()) setenv("CUDA_VISIBLE_DEVICES", options.uuid.c_str(), 1);
}

Result<SelfTest> Run(const Options& options, bool& no_gpu) {
  SettleEnvironment(options);
  std::string library;
  if (options.soft && std::getenv("TESSERA_REAL_LIBCUDA") == nullptr) {
    std::error_code error;
    library = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "soft/libcuda.so.1";
  }
  const auto cuda = CudaLibrary::Load(library);
  const auto device = cuda ? FindDevice(*cuda, options.uuid) : std::unexpected(cuda.error());
  if (!device) {
    no_gpu = !cuda || device.error().code == ENODEV;
    return std::unexpected(device.error());
  }
  return TestDevice(*cuda, *device);
}

bool ParseOptions(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--soft") {
      options.soft = true;
    } else if (argument == "--gpu" && i + 1 < count) {
      options.uuid = arguments[++i];
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace tessera::channel

// The driver's library finds this one before the C library's.
extern "C" [[gnu::visibility("default")]] int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const long result = syscall(SYS_ioctl, fd, request, argument);
  if (result != 0) return static_cast<int>(result);
  const int before = errno;
  if (const auto event = tessera::channel::EventOfIoctl(fd, request, argument)) {
    tessera::channel::Objects& objects = tessera::channel::OwnObjects();
    tessera::MutexLock lock(objects.mutex);
    objects.table.Apply(*event);
  }
  errno = before;
  return 0;
}

int main(int count, char** arguments) {
  using namespace tessera::channel;
  Options options;
  if (!ParseOptions(count, arguments, options)) {
    std::fputs("usage: tessera-channel-test [--gpu UUID] [--soft]\n", stderr);
    return 1;
  }
  signal(SIGALRM, TooLong);
  alarm(30);
  bool no_gpu = false;
  const auto result = Run(options, no_gpu);
  alarm(0);
  std::printf("%s\n", (result ? FormatSelfTest(*result) : FormatFailedSelfTest(step, result.error().Text())).c_str());
  std::fflush(stdout);
  // Without the driver's own end, which would wait for a kernel that is in trouble: the kernel driver does it.
  _exit(result ? 0 : no_gpu ? 2 : 1);
}
