#include "soft/process_id.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "base/unique_fd.h"

namespace tessera::soft {
namespace {

struct Stat {
  char state = 'X';
  long threads = 0;
  std::uint64_t start_time = 0;
};

// All zero and 'X' if there is no such process.
Stat ReadStat(pid_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
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

}  // namespace

ProcessId ProcessId::Self() { return {getpid(), ReadStat(getpid()).start_time}; }

bool ProcessId::Alive() const {
  const Stat stat = ReadStat(pid);
  if (stat.start_time != start_time) return false;
  // A zombie with several threads is a program whose first thread has left; the others still run.
  const bool ended = stat.state == 'X' || (stat.state == 'Z' && stat.threads <= 1);
  return !ended;
}

bool ProcessId::Stopped() const {
  const Stat stat = ReadStat(pid);
  return stat.start_time == start_time && (stat.state == 'T' || stat.state == 't');
}

}  // namespace tessera::soft
