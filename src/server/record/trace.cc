#include "server/record/trace.h"

#include <unistd.h>

#include <cstdio>

#include "base/whole_file.h"
#include "server/record/log.h"

namespace tessera::server::trace {
namespace {

std::unique_ptr<TraceRing> ring;
std::string ring_path;

}  // namespace

void Begin(const std::string& run_dir) {
  const std::string path = run_dir + kFile;
  if (access(path.c_str(), F_OK) == 0) {
    log::Warn("the previous daemon crashed or was killed; 'tessera trace --last' has what it did");
    std::rename(path.c_str(), (run_dir + kLastFile).c_str());
  }
  auto made = TraceRing::Make(path);
  ring_path = made ? path : "";
  if (!made) {
    log::Warn("{}; the trace of this daemon is lost if it is killed", made.error().Text());
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
  return ReplaceFile(run_dir + kLastFile, bytes, 0600, "");
}

}  // namespace tessera::server::trace
