#include "soft/shared/process_id.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "base/mutex.h"
#include "base/unique_fd.h"

namespace tessera::soft {
namespace {

struct Stat {
  char state = 'X';
  long threads = 0;
  std::uint64_t start_time = 0;
};

// All zero and 'X' if there is no such process.
Stat ReadStat(const char* pid) {
  char path[64];
  // With a dot: under qemu-user, a program that asks for its own by the plain name gets another start than others see.
  std::snprintf(path, sizeof path, "/proc/./%s/stat", pid);
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t length = file ? read(file.Get(), text, sizeof text - 1) : -1;
  if (length <= 0) return {};
  text[length] = '\0';
  // The second field is the program's name in parentheses and may hold anything, so start after the last ')'.
  const char* rest = std::strrchr(text, ')');
  Stat stat;
  unsigned long long start_time = 0;
  if (rest == nullptr ||
      std::sscanf(rest, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu",
                  &stat.state, &stat.threads, &start_time) != 3) {
    return {};
  }
  stat.start_time = start_time;
  return stat;
}

Stat ReadStat(pid_t pid) {
  char text[16];
  std::snprintf(text, sizeof text, "%d", pid);
  return ReadStat(text);
}

// 0 if there is no such process, or this one may not ask: it is another user's, or has more capabilities than this one
// (ptrace(2), PTRACE_MODE_READ).
std::uint32_t NamespaceOf(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
  struct stat status = {};
  return stat(path, &status) == 0 ? static_cast<std::uint32_t>(status.st_ino) : 0;
}

// Ours, which never changes; but a child may be in another one than its parent. Asked for each process of each
// question.
std::uint32_t OwnNamespace() {
  static std::atomic<std::uint32_t> own = 0;
  static const int forgotten_by_children = pthread_atfork(nullptr, nullptr, [] { own = 0; });
  if (forgotten_by_children != 0) return NamespaceOf("self");
  std::uint32_t known = own.load(std::memory_order_relaxed);
  if (known == 0) own = known = NamespaceOf("self");
  return known;
}

// The number of a process in the innermost namespace that it is in, the last one of its NSpid line, which all may read;
// 0 if it has ended.
pid_t InnermostPid(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%s/status", pid);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), std::fclose);
  char line[512];
  while (file && std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::strncmp(line, "NSpid:", 6) == 0) return std::atoi(std::strrchr(line, '\t') + 1);
  }
  return 0;
}

// The number here of a process in a namespace within ours, 0 if there is none. Looks through all of /proc. Where the
// namespace may not be asked for, the number inside and the start have to do.
pid_t Find(const ProcessId& process) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    const std::uint32_t seen = NamespaceOf(entry->d_name);
    if (seen != 0 && seen != process.pid_namespace) continue;
    if (InnermostPid(entry->d_name) == process.pid && ReadStat(pid).start_time == process.start_time) return pid;
  }
  return 0;
}

// The results of Find, which is slow, by process.
struct FoundPids {
  Mutex mutex;
  std::map<std::tuple<std::uint32_t, pid_t, std::uint64_t>, pid_t> pids TESSERA_GUARDED_BY(mutex);
};

pid_t Found(const ProcessId& process) {
  static FoundPids& found = *new FoundPids;
  const MutexLock lock(found.mutex);
  pid_t& pid = found.pids[{process.pid_namespace, process.pid, process.start_time}];
  if (pid == 0 || ReadStat(pid).start_time != process.start_time) pid = Find(process);
  const pid_t here = pid;
  if (here == 0) found.pids.erase({process.pid_namespace, process.pid, process.start_time});
  return here;
}

}  // namespace

ProcessId ProcessId::Self() { return {getpid(), OwnNamespace(), ReadStat("self").start_time}; }

pid_t ProcessId::Here() const { return pid == 0 || pid_namespace == OwnNamespace() ? pid : Found(*this); }

bool ProcessId::Alive(std::uint32_t outermost) const {
  const pid_t here = Here();
  if (here == 0) return pid != 0 && outermost != OwnNamespace();
  const Stat stat = ReadStat(here);
  if (stat.start_time != start_time) return false;
  // A zombie with several threads is a program whose first thread has left; the others still run.
  const bool ended = stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
  return !ended;
}

bool ProcessId::Stopped() const {
  const Stat stat = ReadStat(Here());
  return stat.start_time == start_time && (stat.state == 'T' || stat.state == 't');
}

}  // namespace tessera::soft
