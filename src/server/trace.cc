#include "server/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "base/unique_fd.h"
#include "server/log.h"

namespace tessera::server::trace {
namespace {

std::unique_ptr<TraceRing> ring;
std::string ring_path;

}  // namespace

void Begin(const std::string& run_dir) {
  const std::string path = run_dir + kFile;
  if (access(path.c_str(), F_OK) == 0) {
    log::Warn("the daemon before this one did not end in order; 'tessera trace --last' has what it did");
    std::rename(path.c_str(), (run_dir + kLastFile).c_str());
  }
  auto made = TraceRing::Make(path);
  ring_path = made ? path : "";
  if (!made) {
    log::Warn("{}; what this daemon does is lost if it is killed", made.error().Text());
    made = TraceRing::Make("");
  }
  if (made) ring = std::move(*made);
}

void End() {
  ring.reset();
  if (!ring_path.empty()) unlink(ring_path.c_str());
  ring_path.clear();
}

void Note(const TraceRecord& record) {
  if (ring) ring->Note(record);
}

void NameVGpu(std::uint64_t id, std::string_view name) {
  if (ring) ring->NameVGpu(id, name);
}

void NameProgram(pid_t pid, std::string_view name) {
  if (ring) ring->NameProgram(pid, name);
}

TraceCopy Copy(Nanos since) { return ring ? ring->Copy(since) : TraceCopy{.now = MonotonicNow()}; }

std::string Bytes() { return ring ? ring->Bytes() : ""; }

Result<void> SaveLast(const std::string& run_dir, const std::string& bytes) {
  const std::string path = run_dir + kLastFile, next = path + ".new";
  const UniqueFd file(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return FailErrno("cannot write " + next);
  for (std::string_view left = bytes; !left.empty();) {
    const ssize_t wrote = write(file.Get(), left.data(), left.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      Error error = FailErrno("cannot write " + next).error();
      unlink(next.c_str());
      return std::unexpected(std::move(error));
    }
    left.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (std::rename(next.c_str(), path.c_str()) != 0) return FailErrno("cannot replace " + path);
  return {};
}

}  // namespace tessera::server::trace
