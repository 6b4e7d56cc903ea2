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

// Observer of all GPU programs of the node: reports the clients, devices, channel groups, channels and memory that they
// make and free in NVIDIA's resource manager. It uses BPF programs on the raw tracepoints sys_exit, sched_process_exit
// and sched_process_exec. It only observes, and believes a program's own memory: a hostile program can claim handles of
// others, hide its own, or fill the ring. So it serves to find programs, never to refuse them something.
//
// Needs Linux 5.8 and root, or CAP_BPF and CAP_PERFMON (and CAP_SYS_PTRACE to find running programs of other users). It
// sees the whole node, even from inside a container; there a process of another PID namespace has pid 0. While it
// exists, every system call of the machine takes 15-40 ns more (docs/hardware-log.md).
//
// It does not see 32-bit programs, memory that graphics drivers allocate by NVOS32, managed memory (of nvidia-uvm), and
// the end of a client by close(2) of its file: objects of that client stay until the process exits.
//
// One thread.
class Watch {
 public:
  using Callback = std::function<void(const WatchEvent&)>;

  // Begins to watch. Calls `callback` for programs that use the GPU already (kExisting), and later from Read. Does not
  // report the calling process. EPERM without the rights, ENOSYS if the kernel lacks a feature.
  static Result<std::unique_ptr<Watch>> Start(Callback callback, const WatchOptions& options = {});
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Readable while there are events; the watch keeps it.
  int Fd() const;
  // Calls back for the present events, in order. Never blocks. Returns even if programs make events as fast as it
  // reads; Fd stays readable then.
  void Read();
  // Number of events that were lost so far, because the ring was full or a program's memory could not be read.
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
