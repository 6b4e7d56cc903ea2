#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "guard/watch/watch_event.h"

struct ring_buffer;
struct watch_bpf;

namespace tessera::guard {

struct WatchOptions {
  std::uint32_t ring_bytes = 1 << 20;  // for events that were not read yet, some 80 bytes each; a power of 2, one page
                                       // at least
  bool report_failures = false;        // for tests without a driver: tell also what ended with ENOTTY
};

// Sees what every GPU program of the node does to the objects of NVIDIA's resource manager that matter to us, whoever
// started it: BPF programs on the raw tracepoints sys_exit, sched_process_exit and sched_process_exec. It only looks,
// and believes what a program's own memory says: a hostile one can claim handles that are another's, hide what it has,
// or fill the ring. So this is for finding programs, never for refusing them something.
//
// Needs Linux 5.8 and root, or CAP_BPF and CAP_PERFMON (and CAP_SYS_PTRACE to find the programs of other users that run
// already). The whole node is seen, from inside a container too; there a process of another PID namespace has pid 0.
// While it exists every system call of the machine takes 15-40 ns more (docs/hardware-log.md).
//
// Not seen: 32-bit programs, memory that graphics drivers allocate by NVOS32, managed memory (nvidia-uvm makes it), and
// the end of a client by close(2) of its file: what it had stays until the process exits.
//
// One thread.
class Watch {
 public:
  using Callback = std::function<void(const WatchEvent&)>;

  // Begins to watch. Calls `callback` for the programs that use the GPU already (kExisting), and later from Read.
  // Nothing is told of the calling process. EPERM without the rights, ENOSYS where the kernel lacks it.
  static Result<std::unique_ptr<Watch>> Start(Callback callback, const WatchOptions& options = {});
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Readable while there are events; the watch keeps it.
  int Fd() const;
  // Calls back for the events that are there, in their order. Never blocks, and ends even if programs make events as
  // fast as it reads: Fd is readable still, then.
  void Read();
  // Events that were not told so far, because nobody read or a program's memory could not be.
  std::uint64_t Lost() const;

 private:
  struct Unload {
    void operator()(watch_bpf* skeleton) const;
    void operator()(ring_buffer* ring) const;
  };

  using Skeleton = std::unique_ptr<watch_bpf, Unload>;

  Watch(Callback callback, Skeleton skeleton, std::size_t ring_records);
  static Result<Skeleton> Load(const WatchOptions& options, bool types);
  Result<void> OpenRing();
  void TellExisting();
  void Tell(WatchEvent event);
  static int OnRecord(void* self, void* data, std::size_t bytes);

  const Callback callback_;
  const Skeleton skeleton_;
  const std::size_t ring_records_;             // that it has room for
  std::unique_ptr<ring_buffer, Unload> ring_;  // after skeleton_, whose map it reads
  std::size_t left_to_read_ = 0;               // by the Read that runs
  std::uint64_t last_sequence_ = 0;
  std::uint64_t lost_told_ = 0;
};

}  // namespace tessera::guard
