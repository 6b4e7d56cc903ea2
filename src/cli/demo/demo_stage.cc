#include "cli/demo/demo_stage.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/unique_fd.h"
#include "cli/doctor/nvml.h"
#include "cli/launch/daemon.h"
#include "client/json_fields.h"

namespace tessera::cli {
using client::Field;
using client::IntegerField;
using client::Json;
using client::TextField;

namespace {

constexpr int kFarewellMilliseconds = 5000;

// The demo does not use the node's configuration. Host memory is allocated as it is needed.
constexpr const char* kConfig = "[swap]\nsize = \"90%\"\n";

bool HasRealGpu() {
  const auto nvml = AskNvml();
  return nvml && !nvml->gpus.empty();
}

// The name of the demo's own soft GPU, which programs of the user do not use. The daemon and the tenants inherit it.
std::string SoftName() { return "demo-" + std::to_string(getpid()); }

void EndDaemon(int pid) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return;
  kill(pid, SIGTERM);
  pollfd end = {.fd = process.Get(), .events = POLLIN, .revents = 0};
  if (poll(&end, 1, kFarewellMilliseconds) == 0) kill(pid, SIGKILL);
}

}  // namespace

Result<DemoStage> DemoStage::Set(const Common& common, unsigned gpu) {
  DemoStage stage;
  stage.gpu_ = gpu;
  stage.common_ = common;
  stage.common_.soft = common.soft || !HasRealGpu();
  if (stage.common_.soft) setenv("TESSERA_SOFT_NAME", SoftName().c_str(), 1);
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-demo-XXXXXX").string();
  if (!mkdtemp(folder.data()))
    return FailErrno("cannot make a directory like " + folder, "set TMPDIR to a writable directory");
  stage.common_.run_dir = folder;
  if (auto started = stage.StartDaemon(); !started) return std::unexpected(started.error());
  return stage;
}

DemoStage::DemoStage(DemoStage&& other) noexcept
    : common_(std::exchange(other.common_, {})),
      gpu_(other.gpu_),
      daemon_pid_(std::exchange(other.daemon_pid_, 0)),
      device_name_(std::move(other.device_name_)),
      device_uuid_(std::move(other.device_uuid_)),
      memory_bytes_(other.memory_bytes_) {}

DemoStage::~DemoStage() {
  if (daemon_pid_ > 0) EndDaemon(daemon_pid_);
  // The swap holder that the daemon leaves behind removes its own name meanwhile: then once more.
  std::error_code ignored;
  for (int tries = 0; tries < 100 && !common_.run_dir.empty() && std::filesystem::exists(common_.run_dir, ignored);
       ++tries)
    std::filesystem::remove_all(common_.run_dir, ignored);
  if (common_.soft) {
    std::filesystem::remove("/dev/shm/tessera-soft-" + std::to_string(geteuid()) + "-" + SoftName(), ignored);
  }
}

Result<void> DemoStage::StartDaemon() {
  common_.config = common_.run_dir + "/demo.toml";
  if (!(std::ofstream(common_.config) << kConfig << std::flush)) return FailErrno("cannot write " + common_.config);
  const auto daemon = EnsureDaemon(common_);
  if (!daemon) return std::unexpected(daemon.error());
  daemon_pid_ = daemon->pid;
  const auto answer = client().Get("/v1/gpus");
  if (!answer) return std::unexpected(answer.error());
  const Json& gpus = Field(*answer, "gpus");
  if (gpus.empty()) return Fail(ENODEV, "the daemon has no GPU", "see 'tessera doctor'");
  if (gpu_ >= gpus.size())
    return Fail(ENODEV, "there is no GPU " + std::to_string(gpu_) + ": they are numbered from 0 to " +
                            std::to_string(gpus.size() - 1));
  device_name_ = TextField(gpus[gpu_], "name");
  device_uuid_ = TextField(gpus[gpu_], "uuid");
  memory_bytes_ = IntegerField(gpus[gpu_], "memory_total_bytes");
  return {};
}

Variables DemoStage::WithoutTessera() const {
  if (!common_.soft) return {};
  const std::filesystem::path driver = Installation::Find().SoftDriver();
  Variables variables = {{"LD_LIBRARY_PATH", driver.parent_path().string()}};
  if (!common_.soft_spec.empty()) variables.emplace_back("TESSERA_SOFT", common_.soft_spec);
  return variables;
}

ProgramPlace DemoStage::PlaceIn(const std::string& name) const {
  return {.installation = Installation::Find(),
          .run_dir = common_.run_dir,
          .vgpus = {name},
          .gpu_uuids = {device_uuid_},
          .soft = common_.soft,
          .soft_spec = common_.soft_spec};
}

}  // namespace tessera::cli
