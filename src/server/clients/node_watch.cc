#include "server/clients/node_watch.h"

#include <algorithm>
#include <utility>

#include "server/record/log.h"

namespace tessera::server {

std::uint64_t UnmanagedBytes(const guard::WatchTable& seen, GpuServer& gpu, pid_t pid) {
  const guard::WatchedProcess* process = seen.Find(pid);
  const auto& measured = gpu.Measurement().Unmanaged();
  const auto found = measured.find(pid);
  return std::max(process ? process->memory.Bytes() : 0, found == measured.end() ? 0 : found->second);
}

NodeWatch::NodeWatch(EventLoop& loop, std::function<void(const guard::WatchEvent&, Nanos)> on_event)
    : loop_(loop), on_event_(std::move(on_event)) {}

void NodeWatch::Start() {
  auto watch = guard::Watch::Start([this](const guard::WatchEvent& event) {
    seen_.Apply(event);
    on_event_(event, MonotonicNow());
  });
  if (!watch) {
    why_not_ = watch.error().Text();
    log::Info("programs that were not started through Tessera are not seen: {}", why_not_);
    return;
  }
  watch_ = std::move(*watch);
  auto readable = loop_.WatchReadable(watch_->Fd(), [this] { watch_->Read(); });
  if (!readable) {
    why_not_ = readable.error().Text();
    watch_.reset();
    return;
  }
  readable_ = std::move(*readable);
  why_not_.clear();
}

bool NodeWatch::Complete(pid_t pid) const {
  const guard::WatchedProcess* process = seen_.Find(pid);
  return !process || process->complete;
}

}  // namespace tessera::server
