// Record from the watch's BPF program (watch.bpf.c) to the daemon (watch.cc). Plain C, because both include it.
#pragma once

#include <linux/types.h>

enum {
  WATCH_ALLOC = 1,
  WATCH_FREE = 2,
  WATCH_DUP = 3,
  WATCH_EXIT = 4,
};

// One event in the ring buffer. Fields as in WatchEvent (watch_event.h).
struct watch_record {
  __u32 kind;
  __u32 host_pid;  // of the thread group, in the initial PID namespace
  __u32 pid;       // likewise in the daemon's; 0: not there
  __s32 fd;
  __u32 client, parent, object, cls, detail;
  __u32 source_client, source_object;
  __u32 pad;
  __u64 bytes;
  char name[16];  // of the thread
};
