// tesserad: the daemon with its faces.
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>

#include "base/descriptor.h"
#include "base/install/environment.h"
#include "base/install/run_dir.h"
#include "base/install/state_dir.h"
#include "face/files/file_mount.h"
#include "face/http/server/http_server.h"
#include "face/http/tcp.h"
#include "server/config/options.h"
#include "server/daemon/control.h"
#include "server/daemon/daemon.h"
#include "server/loop/background.h"
#include "server/loop/listeners.h"
#include "server/record/events.h"
#include "server/record/log.h"
#include "server/record/trace.h"

namespace tessera {
namespace {

constexpr Nanos kWatchdogTimeout =
    5 * kSecond;  // after so long without a sign of life, the watchdog thaws what the daemon froze
constexpr const char* kDefaultConfig = "/etc/tessera/tesserad.toml";

// Drops code pages that only starting up needed, many of them in libraries (OpenSSL under httplib, NVML). Code that is
// used again comes back from the page cache. Only read-only segments are dropped, so nothing can be lost.
int DropCode(dl_phdr_info* library, std::size_t, void*) {
  const auto page = static_cast<std::uintptr_t>(getpagesize());
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W)) continue;
    const std::uintptr_t begin = (library->dlpi_addr + segment.p_vaddr) / page * page;
    madvise(reinterpret_cast<void*>(begin), library->dlpi_addr + segment.p_vaddr + segment.p_memsz - begin,
            MADV_DONTNEED);
  }
  return 0;
}

// The token may have changed; the path of its file is fixed when the daemon begins to listen.
Result<void> TakeToken(face::HttpServer& http, const server::Config& config, bool embedded) {
  if (config.api_listen.empty() || embedded) return {};
  auto token = face::ReadToken(config.api_token_file);
  if (!token) return std::unexpected(token.error());
  http.SetToken(std::move(*token));
  return {};
}

Result<server::Config> LoadConfig(const std::string& path) {
  if (!path.empty()) return server::LoadConfig(path);
  return access(kDefaultConfig, F_OK) == 0 ? server::LoadConfig(kDefaultConfig) : server::Config();
}

// The control of channels; empty, with a reason, where that is impossible or not wanted.
struct Steering {
  std::unique_ptr<channel::Control> control;
  std::unique_ptr<channel::Watchdog> watchdog;
  std::string why_not;
};

// Forks the watchdog, so it must come before any thread.
Steering OpenSteering(server::GpuDriver& driver, const server::Config& config, const std::string& run_dir) {
  if (!config.steer_channels) return {.why_not = "channels.control is \"off\" in the configuration"};
  auto control = driver.OpenControl();
  if (!control) return {.why_not = control.error().Text()};
  auto lock = server::LockWatchdog(run_dir);
  if (!lock) return {.why_not = "there is no watchdog: " + lock.error().Text()};
  auto watchdog =
      channel::Watchdog::Start([&driver] { return driver.OpenControl(); }, kWatchdogTimeout, std::move(*lock));
  if (!watchdog) return {.why_not = "there is no watchdog: " + watchdog.error().Text()};
  return {.control = std::move(*control), .watchdog = std::move(*watchdog), .why_not = {}};
}

// Embedded daemons have no TCP: the address belongs to the node's daemon.
Result<void> OpenTcp(server::EventLoop& loop, face::HttpServer& http, const server::Config& config, bool embedded) {
  if (config.api_listen.empty() || embedded) return {};
  auto token = face::ReadToken(config.api_token_file);
  if (!token) return std::unexpected(token.error());
  auto listener = face::ListenTcp(config.api_listen);
  if (!listener) return std::unexpected(listener.error());
  server::log::Info("the API is also served at http://{}", config.api_listen);
  return http.AddTcp(loop, std::move(*listener), std::move(*token));
}

// Mounts the files where that is possible. The daemon works without them.
std::unique_ptr<face::FileMount> MountFiles(server::Control& control, const server::Config& config,
                                            const std::string& run_dir) {
  // An embedded daemon is too short-lived to be worth a mount.
  if (!config.files || control.Traits().embedded) return {};
  auto files = face::FileMount::Start(control, run_dir);
  if (files) {
    server::log::Info("the files are mounted at {}", (*files)->Path());
    return std::move(*files);
  }
  server::log::Warn("the files are not available: {}", files.error().Text());
  return {};
}

// The run directory where the other one cannot be used: vGPUs do not outlive a boot then, and all else is as ever.
std::string FindStateDir(const server::Options& options, const std::string& run_dir) {
  const std::string path = StateDir(options.state_dir, run_dir, options.soft_spec.has_value());
  if (path == run_dir) return path;
  auto prepared = PrepareStateDir(path);
  if (prepared) return path;
  server::log::Warn("vGPUs will not outlive a boot: {}", prepared.error().Text());
  return run_dir;
}

Result<void> Serve(const server::Options& options) {
  // Before everything else, so that threads of the driver's library do not receive the signals.
  auto loop = server::EventLoop::Create();
  if (!loop) return std::unexpected(loop.error());
  auto signals = (*loop)->WatchTermination([&] { (*loop)->Stop(); });
  if (!signals) return std::unexpected(signals.error());
  std::function<void()> reload;
  auto hangup = (*loop)->WatchSignal(SIGHUP, [&reload] {
    if (reload) reload();
  });
  if (!hangup) return std::unexpected(hangup.error());

  auto config = LoadConfig(options.config);
  if (!config) return std::unexpected(config.error());
  const std::string run_dir = RunDir(options.run_dir, options.soft_spec.has_value());
  if (auto prepared = PrepareRunDir(run_dir); !prepared) return prepared;
  auto lock = server::LockRunDir(run_dir);
  if (!lock) return std::unexpected(lock.error());
  // The control daemons of spaces use the same soft GPU.
  if (options.soft_spec) setenv("TESSERA_SOFT", options.soft_spec->c_str(), 1);
  auto driver = options.soft_spec ? server::OpenSoftDriver(*options.soft_spec) : server::OpenNvmlDriver();
  if (!driver) return std::unexpected(driver.error());
  Steering steering = OpenSteering(**driver, *config, run_dir);
  server::trace::Begin(run_dir);
  const auto operators = server::OperatorsGroup(config->api_group);
  auto listeners = server::Listeners::Open(run_dir, operators, geteuid() == 0 && config->access_users);
  if (!listeners) return std::unexpected(listeners.error());

  const std::string state_dir = FindStateDir(options, run_dir);
  auto daemon = server::Daemon::Start(**loop, std::move(*driver),
                                      {.config = *config,
                                       .operators = operators,
                                       .run_dir = run_dir,
                                       .state_dir = state_dir,
                                       .client_listener = std::move(listeners->client),
                                       .control = std::move(steering.control),
                                       .why_no_control = steering.why_not,
                                       .watchdog = std::move(steering.watchdog),
                                       .watch = !options.soft_spec.has_value(),
                                       .exit_when_idle = options.exit_when_idle});
  if (!daemon) return std::unexpected(daemon.error());
  server::ConfigReader reader{.read = [&options] { return LoadConfig(options.config); }, .also = {}, .reading = {}};
  server::Control control(**loop, **daemon, &reader);
  auto http = face::HttpServer::Start(**loop, std::move(listeners->api), control);
  if (!http) return std::unexpected(http.error());
  if (auto opened = OpenTcp(**loop, **http, *config, options.exit_when_idle); !opened) return opened;
  reader.also = [&] { return TakeToken(**http, *config, options.exit_when_idle); };
  server::Background reloading(**loop);
  reload = [&control, &reloading] {
    if (reloading.Busy()) return;
    reloading.Start(
        [&control] {
          if (auto done = control.Reload(); !done)
            server::log::Error("configuration not reloaded: {}", done.error().Text());
        },
        [] {});
  };
  const auto files = MountFiles(control, *config, run_dir);
  server::log::Info("serving {}", run_dir);
  server::events::Note({.type = server::EventType::kDaemonStarted, .text = "tesserad " TESSERA_VERSION});
  dl_iterate_phdr(DropCode, nullptr);
  sd_notify(0, "READY=1");
  auto ran = (*loop)->Run();
  sd_notify(0, "STOPPING=1");
  if (ran) server::trace::End();
  return ran;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const auto parsed = tessera::server::ParseOptions(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const auto& options = std::get<tessera::server::Options>(parsed);
  tessera::server::log::SetUp(options.log_level);
  tessera::ForgetOtherPrograms();
  std::signal(SIGPIPE, SIG_IGN);
  mallopt(M_ARENA_MAX, 2);          // the threads that answer HTTP and ask the driver need no heaps of their own
  tessera::RaiseDescriptorLimit();  // a program takes three, and swapped or shared memory many more
  if (auto served = tessera::Serve(options); !served) {
    tessera::server::log::Error("{}", served.error().Text());
    return 1;
  }
  return 0;
}
