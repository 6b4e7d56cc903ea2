#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tessera::server {

// Events on the GPUs from moment to moment, for a timeline.
enum class TraceKind : std::uint32_t {
  // Of a vGPU, from now on. value: Standing; other: WaitReason; old_…: those before, for `took`
  kStanding = 1,
  kFrozen = 2,    // a process. value: bits of FreezeReason, all that hold from now on; took: the call, if it took one
  kThawed = 3,    // for no reason any more. Likewise
  kSlice = 4,     // of a process from now on. value: nanoseconds
  kMovedOut = 5,  // of a process to host memory. value: bytes; took: from the order to the end
  kMovedIn = 6,
  kMemory = 7,  // of a vGPU, from now on. value: bytes on the GPU; other: bytes in host memory
  // Of a process, from now on. value: SuspensionPhase; old_value: the one before, for `took`, with `other` bytes
  kSuspension = 8,
};

// 64 bytes, as the ring's file has it. Fields that do not apply are 0.
struct TraceRecord {
  Nanos at = 0;    // CLOCK_MONOTONIC, of the end where it took time
  Nanos took = 0;  // nanoseconds
  std::uint64_t value = 0, other = 0;
  std::uint64_t vgpu = 0;
  std::int32_t pid = 0;
  std::uint32_t gpu = 0;
  TraceKind kind{};
  std::uint32_t old_value = 0, old_other = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(TraceRecord) == 64);

// The records of a ring at one moment.
struct TraceCopy {
  std::vector<TraceRecord> records;  // in order
  bool whole = true;                 // nothing of what was asked for is overwritten
  Nanos now = 0;                     // when it was copied, or a saved one noted its last
  Nanos wall = 0;                    // of the wall clock, at 0 of CLOCK_MONOTONIC
  // As far as they are known still.
  std::map<std::uint64_t, std::string> vgpus;
  std::map<pid_t, std::string> programs;
};

// The last 65,536 records, in a file that is memory: it outlives a daemon that is killed, so that what it did last can
// be looked at. 4.3 MiB. One thread, but for Load.
class TraceRing {
 public:
  static constexpr std::size_t kRecords = 1 << 16;

  // In a new file at `path`, in place of any that is there, or without a name for "". An error where there is no room.
  static Result<std::unique_ptr<TraceRing>> Make(const std::string& path);
  ~TraceRing();
  TraceRing(const TraceRing&) = delete;

  void Note(const TraceRecord& record);
  // At most 51 characters are kept.
  void NameVGpu(std::uint64_t id, std::string_view name);
  void NameProgram(pid_t pid, std::string_view name);

  // Those that ended since `since`.
  TraceCopy Copy(Nanos since) const;
  // The ring as it is, for SaveTrace.
  std::string Bytes() const;

  // A file that a ring, or SaveTrace, left. ENOENT: there is none; EBADMSG: it is none.
  static Result<TraceCopy> Load(const std::string& path);

 private:
  struct File;
  explicit TraceRing(File* file) : file_(file) {}
  static TraceCopy CopyOf(const File& file, Nanos since);
  void Name(std::uint32_t kind, std::uint64_t id, std::string_view name);

  File* const file_;
};

}  // namespace tessera::server
