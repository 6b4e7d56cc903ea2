#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/gpu/gpu_server.h"
#include "server/suspended/suspended_files.h"

namespace tessera::server {

// Has the movers write what a suspended program has in host memory to files, one for each of its GPUs, and read that
// back. What the driver saved stays in the program. On the loop's thread, which it never blocks.
class ProgramFile {
 public:
  // Both outlive the object.
  ProgramFile(pid_t pid, const std::vector<std::unique_ptr<GpuServer>>& gpus, SuspendedFiles& files)
      : pid_(pid), gpus_(gpus), files_(files) {}

  void Write(Nanos now) { Begin(Doing::kWrites, now); }
  void Read(Nanos now) { Begin(Doing::kReads, now); }
  // Whether a part of the program has such a file.
  bool Exists() const;
  // Does what is next, and says how what was begun has ended; nothing: it has not. After an error of Write all is in
  // host memory, but for GPUs whose files were finished; after one of Read all is in the files. Errors name the file.
  std::optional<Result<void>> Ended(Nanos now);

 private:
  enum class Doing { kWrites, kReads };
  void Begin(Doing doing, Nanos now);
  template <typename Visit>
  void ForEach(Visit visit) const;
  Result<bool> Order(GpuServer& gpu, Process& process);
  Result<void> EndOf(const GpuServer& gpu, const Process& process);

  const pid_t pid_;
  const std::vector<std::unique_ptr<GpuServer>>& gpus_;
  SuspendedFiles& files_;
  Doing doing_ = Doing::kWrites;
  Nanos began_at_ = 0;
  std::set<std::uint32_t> ordered_;  // of these GPUs
};

}  // namespace tessera::server
