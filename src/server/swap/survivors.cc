#include "server/swap/survivors.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tessera::server {

Survivors::Survivors(EventLoop& loop, std::function<void()> fewer)
    : loop_(loop), fewer_(std::move(fewer)), forget_(loop, [this] {
        std::erase_if(missing_, [](const auto& entry) { return entry.second.ended; });
        fewer_();
      }) {}

// The descriptor comes first: from then on the pid is that of no other process that looks the same.
void Survivors::Expect(const ProcessName& program, Nanos now) {
  Survivor survivor{.start = program.start, .process = {}, .end = {}};
  survivor.process.Reset(static_cast<int>(syscall(SYS_pidfd_open, program.pid, 0)));
  if (!survivor.process || ProcessStart(program.pid).value_or(0) != program.start) return;
  auto end = loop_.WatchReadable(survivor.process.Get(), [this, pid = program.pid] {
    const auto found = missing_.find(pid);
    if (found != missing_.end()) found->second.ended = true;
    forget_.MarkDue();  // not now: this is its own callback
  });
  if (!end) return;
  survivor.end = std::move(*end);
  if (missing_.empty()) since_ = now;
  missing_.try_emplace(program.pid, std::move(survivor));
}

std::size_t Survivors::Missing() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(missing_, [](const auto& entry) { return !entry.second.ended; }));
}

std::vector<ProcessName> Survivors::All() const {
  std::vector<ProcessName> all;
  for (const auto& [pid, survivor] : missing_) all.push_back({pid, survivor.start});
  return all;
}

}  // namespace tessera::server
