// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Sees what every program of the node gets from NVIDIA's resource manager (RM): runs in the kernel when any system call
// returns, and looks no further unless it was one of RM's ioctls and went well. Layouts and numbers are those of
// channel/rm/driver_abi.h, which C cannot include; watch.cc compares them.
//
// The end of the call is enough: the registers still hold the arguments then (registers_*.h), RM has written back the handles
// that it chose, and the status says whether it did anything. Raw tracepoints need neither tracefs nor the kernel's
// type information. It reads the program's own memory: a hostile program can claim anything.

#include <linux/bpf.h>
// After linux/bpf.h, whose types they use.
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "guard/watch/watch_record.h"
#if defined(TESSERA_X86_64)
#include "guard/watch/registers_x86_64.h"
#else
#include "guard/watch/registers_aarch64.h"
#endif

// The helpers that read memory ask for a license that the kernel calls compatible.
char kLicense[] SEC("license") = "GPL";

// Set by watch.cc before it loads the program.
const volatile __u8 kReportFailures = 0;  // tests, in which ioctls reach no driver
const volatile __u64 kNamespaceDevice = 0;
const volatile __u64 kNamespaceInode = 0;  // of the daemon's PID namespace; 0: it is the initial one
const volatile __u32 kKeptForExits = 0;    // bytes of the ring that other events leave free
const volatile __u32 kRingBytes = 0;

__u64 lost = 0;  // events that were not told

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);  // resized by watch.cc
  __uint(max_entries, 1 << 20);
} ring SEC(".maps");

// The processes of which something was told, so that of the node's exits only theirs are. Keys as Key() makes them.
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1 << 14);
  __type(key, __u64);
  __type(value, __u8);
} processes SEC(".maps");

enum { kErrorNotTty = 25 };
enum { kFree = 0x4629, kAlloc = 0x462b, kDup = 0x4634 };  // type and number of the request
enum { kRoot = 0, kRootNonPrivileged = 1, kRootClient = 0x41, kDevice = 0x80, kMemoryLocal = 0x40, kGroup = 0xa06c };
enum { kSizeFree = 16, kSizeDup = 28, kSizeAllocShort = 32, kSizeAlloc = 48 };
enum { kStatusAllocShort = 28, kStatusAlloc = 40 };                 // offsets of the status
enum { kParamsDevice = 0, kParamsEngine = 12, kParamsBytes = 64 };  // offsets in an allocation's parameters

static __always_inline int IsOfInterest(__u32 cls) {
  switch (cls) {
    case kRoot:
    case kRootNonPrivileged:
    case kRootClient:
    case kDevice:
    case kMemoryLocal:
    case kGroup:
    case 0xc36f:  // channels: Volta, Turing, Ampere and Ada, Hopper, Blackwell A and B
    case 0xc46f:
    case 0xc56f:
    case 0xc86f:
    case 0xc96f:
    case 0xca6f:
      return 1;
    default:
      return 0;
  }
}

static __always_inline void CountLost(void) { __sync_fetch_and_add(&lost, 1); }

// Names the caller's process in a record.
static __always_inline void FillProcess(struct watch_record* record) {
  record->host_pid = bpf_get_current_pid_tgid() >> 32;
  record->pid = record->host_pid;
  if (kNamespaceInode != 0) {
    struct bpf_pidns_info in_namespace = {};
    // Answers for processes of the very namespace only, not for those of namespaces inside it.
    const long failed =
        bpf_get_ns_current_pid_tgid(kNamespaceDevice, kNamespaceInode, &in_namespace, sizeof in_namespace);
    record->pid = failed ? 0 : in_namespace.tgid;
  }
  bpf_get_current_comm(record->name, sizeof record->name);
}

// The pid in the daemon's namespace, so that the daemon can add processes too; the host's above it where there is none.
static __always_inline __u64 Key(const struct watch_record* record) {
  return record->pid ? record->pid : (__u64)record->host_pid << 32;
}

static __always_inline void Tell(struct watch_record* record) {
  FillProcess(record);
  const __u64 key = Key(record);
  if (!bpf_map_lookup_elem(&processes, &key)) {
    const __u8 present = 1;
    if (bpf_map_update_elem(&processes, &key, &present, BPF_ANY)) CountLost();  // its exit will be
  }
  if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) + kKeptForExits > kRingBytes) {
    CountLost();
    return;
  }
  if (bpf_ringbuf_output(&ring, record, sizeof *record, 0)) CountLost();
}

// Reads what the program sees; the pages were in use a moment ago. Counts an event as lost where it cannot.
static __always_inline int Read(void* to, __u32 bytes, __u64 from) {
  if (bpf_probe_read_user(to, bytes, (const void*)from) == 0) return 1;
  CountLost();
  return 0;
}

static __always_inline void OnAlloc(__s32 fd, __u64 argument, __u32 size) {
  struct {
    __u32 root, parent, object, cls;
    __u64 params;
  } alloc;
  __u32 status, number = 0;
  if (!Read(&alloc, sizeof alloc, argument) || !IsOfInterest(alloc.cls)) return;
  if (!Read(&status, sizeof status, argument + (size == kSizeAlloc ? kStatusAlloc : kStatusAllocShort))) return;
  if (status != 0) return;

  struct watch_record record = {.kind = WATCH_ALLOC,
                                .fd = fd,
                                .client = alloc.root,
                                .parent = alloc.parent,
                                .object = alloc.object,
                                .cls = alloc.cls};
  if (alloc.cls == kRoot || alloc.cls == kRootNonPrivileged || alloc.cls == kRootClient) {
    record.client = alloc.object;  // the request's root is nothing yet
  } else if (alloc.cls == kDevice && alloc.params) {
    if (!Read(&number, sizeof number, alloc.params + kParamsDevice)) return;
  } else if (alloc.cls == kGroup && alloc.params) {
    if (!Read(&number, sizeof number, alloc.params + kParamsEngine)) return;
  } else if (alloc.cls == kMemoryLocal && alloc.params) {
    if (!Read(&record.bytes, sizeof record.bytes, alloc.params + kParamsBytes)) return;
  }
  record.detail = number;
  Tell(&record);
}

static __always_inline void OnFree(__s32 fd, __u64 argument) {
  struct {
    __u32 root, parent, object, status;
  } free;
  if (!Read(&free, sizeof free, argument) || free.status != 0) return;
  struct watch_record record = {
      .kind = WATCH_FREE, .fd = fd, .client = free.root, .parent = free.parent, .object = free.object};
  Tell(&record);
}

static __always_inline void OnDup(__s32 fd, __u64 argument) {
  struct {
    __u32 client, parent, object, source_client, source_object, flags, status;
  } dup;
  if (!Read(&dup, sizeof dup, argument) || dup.status != 0) return;
  struct watch_record record = {.kind = WATCH_DUP,
                                .fd = fd,
                                .client = dup.client,
                                .parent = dup.parent,
                                .object = dup.object,
                                .source_client = dup.source_client,
                                .source_object = dup.source_object};
  Tell(&record);
}

// Arguments: struct pt_regs*, the call's result. This runs at every system call of the machine: the result, at hand,
// sends most of them away; one read of the registers nearly all others.
SEC("raw_tracepoint/sys_exit")
int OnSystemCallEnd(struct bpf_raw_tracepoint_args* context) {
  const __s64 result = (__s64)context->args[1];
  if (result != 0 && !(kReportFailures && result == -kErrorNotTty)) return 0;
  struct ioctl_call call;
  if (!ReadIoctl(context->args[0], &call)) return 0;
  const __u32 size = (call.request >> 16) & 0x3fff;
  if (call.request >> 30 != 3) return 0;  // _IOWR

  switch (call.request & 0xffff) {
    case kAlloc:
      if (size == kSizeAllocShort || size == kSizeAlloc) OnAlloc(call.fd, call.argument, size);
      break;
    case kFree:
      if (size == kSizeFree) OnFree(call.fd, call.argument);
      break;
    case kDup:
      if (size == kSizeDup) OnDup(call.fd, call.argument);
      break;
  }
  return 0;
}

static __always_inline int TellExit(void) {
  struct watch_record record = {.kind = WATCH_EXIT, .fd = -1};
  FillProcess(&record);
  const __u64 key = Key(&record);
  // Of two threads that both believe to be the last, one finds it.
  if (bpf_map_delete_elem(&processes, &key)) return 0;
  if (bpf_ringbuf_output(&ring, &record, sizeof record, 0)) CountLost();
  return 0;
}

// Detects the last thread of a process, if the kernel has type information for it.
struct signal_struct {
  struct {
    int counter;
  } live;  // threads that have not begun to exit
} __attribute__((preserve_access_index));
struct task_struct {
  struct signal_struct* signal;
} __attribute__((preserve_access_index));

// Argument: the task that exits, which is the current one.
SEC("raw_tracepoint/sched_process_exit")
int OnLastThreadExit(struct bpf_raw_tracepoint_args* context) {
  struct task_struct* task = (struct task_struct*)context->args[0];
  if (BPF_CORE_READ(task, signal, live.counter) > 0) return 0;
  return TellExit();
}

// In place of OnLastThreadExit elsewhere. A program whose main thread ends before the others is taken for ended.
SEC("raw_tracepoint/sched_process_exit")
int OnMainThreadExit(struct bpf_raw_tracepoint_args* context) {
  const __u64 id = bpf_get_current_pid_tgid();
  if ((__u32)id != id >> 32) return 0;
  return TellExit();
}

// Another program in the same process: the driver's files are closed by then, since its libraries open them so.
SEC("raw_tracepoint/sched_process_exec")
int OnExec(struct bpf_raw_tracepoint_args* context) { return TellExit(); }
