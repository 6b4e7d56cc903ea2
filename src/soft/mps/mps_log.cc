#include "soft/mps/mps_log.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "base/unique_fd.h"

namespace tessera::soft {

void MpsLog::Write(const std::string& text) const {
  const UniqueFd file(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) return;
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts = {};
  localtime_r(&now.tv_sec, &parts);
  char date[32];
  strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
  char head[96];
  std::snprintf(head, sizeof head, "[%s.%03d %s %d] ", date, static_cast<int>(now.tv_nsec / 1'000'000), who_.c_str(),
                getpid());
  const std::string line = head + text + "\n";
  static_cast<void>(!write(file.Get(), line.data(), line.size()));
}

}  // namespace tessera::soft
