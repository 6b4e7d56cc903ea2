#include "server/loop/listeners.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

const std::string kElsewhere = "choose another directory with --run-dir";

// The socket is made where nobody can connect before its mode and group are right: listen comes last.
Result<UniqueFd> Bind(const std::string& path, int type, mode_t mode, gid_t group) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) {
    return Fail(
        ENAMETOOLONG,
        fmt::format("{} is longer than the {} bytes a socket's path may have", path, sizeof address.sun_path - 1),
        kElsewhere);
  }
  path.copy(address.sun_path, path.size());
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return FailErrno("cannot make a socket");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FailErrno("cannot remove the old " + path, kElsewhere);
  if (bind(fd.Get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return FailErrno("cannot bind " + path, kElsewhere);
  }
  if (chmod(path.c_str(), mode) != 0) return FailErrno("cannot set the mode of " + path);
  if (group != gid_t(-1) && chown(path.c_str(), uid_t(-1), group) != 0)
    return FailErrno("cannot give " + path + " to its group");
  if (type != SOCK_DGRAM && listen(fd.Get(), SOMAXCONN) != 0) return FailErrno("cannot listen on " + path);
  return fd;
}

mode_t ModeOfApi(std::optional<gid_t> group, bool everybody) {
  if (everybody) return 0666;
  return group ? 0660 : 0600;
}

}  // namespace

std::optional<gid_t> OperatorsGroup(const std::string& name) {
  const group* found = geteuid() == 0 && !name.empty() ? getgrnam(name.c_str()) : nullptr;
  return found ? std::optional(found->gr_gid) : std::nullopt;
}

Result<UniqueFd> LockRunDir(const std::string& run_dir, const std::function<void()>& wait) {
  const std::string path = run_dir + "/tesserad.lock";
  // A user who can read the file can lock it, and so keep the next daemon out; everybody can read that of an earlier
  // version.
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || fchmod(fd.Get(), 0600) != 0) return FailErrno("cannot open " + path, kElsewhere);
  // A daemon that was killed may have left a child that is about to start a program: it has the lock until then.
  constexpr Nanos kPatience = 2 * kSecond;
  for (const Nanos end = MonotonicNow() + kPatience; flock(fd.Get(), LOCK_EX | LOCK_NB) != 0; wait()) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FailErrno("cannot lock " + path, kElsewhere);
    char text[32] = {};
    if (pread(fd.Get(), text, sizeof text - 1, 0) < 0) text[0] = 0;
    const pid_t holder = std::atoi(text);
    const bool gone = holder > 0 && kill(holder, 0) != 0 && errno == ESRCH;
    if (gone && MonotonicNow() < end) continue;
    return Fail(EBUSY, fmt::format("another tesserad (pid {}) serves {}", holder, run_dir),
                "use that one, or choose another directory with --run-dir");
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd.Get(), 0) != 0 || pwrite(fd.Get(), pid.data(), pid.size(), 0) < 0) {
    return FailErrno("cannot write " + path, kElsewhere);
  }
  return fd;
}

Result<UniqueFd> LockWatchdog(const std::string& run_dir) {
  constexpr Nanos kPatience = 15 * kSecond;  // a watchdog's own is shorter
  const std::string path = run_dir + "/watchdog.lock";
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return FailErrno("cannot open " + path, kElsewhere);
  for (const Nanos end = MonotonicNow() + kPatience; flock(fd.Get(), LOCK_EX | LOCK_NB) != 0; usleep(1000)) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FailErrno("cannot lock " + path, kElsewhere);
    futimens(fd.Get(), nullptr);  // it sees that somebody waits
    if (MonotonicNow() >= end)
      return Fail(EBUSY, "the watchdog of an earlier daemon does not end", "end the process tesserad-wdog");
  }
  return fd;
}

Result<UniqueFd> BindDatagrams(const std::string& path, mode_t mode) {
  return Bind(path, SOCK_DGRAM, mode, static_cast<gid_t>(-1));
}

Result<void> LinkForContainers(const std::string& run_dir, const std::string& name) {
  const std::string folder = run_dir + "/programs", path = folder + "/" + name;
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return FailErrno("cannot make " + folder);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FailErrno("cannot remove the old " + path);
  if (link((run_dir + "/" + name).c_str(), path.c_str()) != 0) return FailErrno("cannot make " + path);
  return {};
}

Result<UniqueFd> ListenStream(const std::string& path, mode_t mode) {
  return Bind(path, SOCK_STREAM, mode, static_cast<gid_t>(-1));
}

Result<Listeners> Listeners::Open(const std::string& run_dir, std::optional<gid_t> group, bool everybody) {
  Listeners listeners;
  if (auto taken = listeners.TakeActivated(); !taken) return std::unexpected(taken.error());
  if (!listeners.client) {
    auto bound = Bind(run_dir + "/client.sock", SOCK_SEQPACKET, 0666, gid_t(-1));
    if (!bound) return std::unexpected(bound.error());
    listeners.client = std::move(*bound);
    listeners.client_path_ = run_dir + "/client.sock";
    listeners.linked_path_ = run_dir + "/programs/client.sock";
  }
  // Also to a socket of the service manager's.
  if (auto linked = LinkForContainers(run_dir, "client.sock"); !linked)
    log::Warn("containers cannot be given the daemon's socket: {}", linked.error().Text());
  if (!listeners.api) {
    auto bound = Bind(run_dir + "/api.sock", SOCK_STREAM, ModeOfApi(group, everybody), group.value_or(gid_t(-1)));
    if (!bound) return std::unexpected(bound.error());
    listeners.api = std::move(*bound);
    listeners.api_path_ = run_dir + "/api.sock";
  }
  return listeners;
}

Listeners::Listeners(Listeners&& other) noexcept
    : client(std::move(other.client)),
      api(std::move(other.api)),
      client_path_(std::exchange(other.client_path_, {})),
      linked_path_(std::exchange(other.linked_path_, {})),
      api_path_(std::exchange(other.api_path_, {})) {}

Listeners::~Listeners() {
  for (const std::string& path : {client_path_, linked_path_, api_path_}) {
    if (!path.empty()) unlink(path.c_str());
  }
}

Result<void> Listeners::TakeActivated() {
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(1, &names);
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(SD_LISTEN_FDS_START + i);
    fcntl(fd.Get(), F_SETFL, fcntl(fd.Get(), F_GETFL) | O_NONBLOCK);
    const std::string name = names[i];
    if (name == "client" && sd_is_socket_unix(fd.Get(), SOCK_SEQPACKET, 1, nullptr, 0) > 0) {
      client = std::move(fd);
    } else if (name == "api" && sd_is_socket_unix(fd.Get(), SOCK_STREAM, 1, nullptr, 0) > 0) {
      api = std::move(fd);
    }
    free(names[i]);
  }
  free(static_cast<void*>(names));
  if (count < 0) return Fail(-count, "the service manager's sockets cannot be taken over");
  return {};
}

}  // namespace tessera::server
