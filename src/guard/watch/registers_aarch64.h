// The registers of a program on 64-bit ARM when one of its system calls returns. C, for watch.bpf.c, which runs in the
// kernel.
#pragma once

#include <linux/bpf.h>
// After linux/bpf.h, whose types they use.
#include <bpf/bpf_helpers.h>

#include "guard/watch/ioctl_call.h"

// The kernel's struct pt_regs from its byte 264, behind x0 to x30, sp and pc: arch/arm64/include/asm/ptrace.h, the same
// since Linux 4.15. x0 has the call's result by now; the other arguments are where they were.
struct registers {
  __u64 pstate, orig_x0;
  __s32 number;
};
enum { kRegistersAt = 264, kIoctl = 29, kMode32 = 0x10 };

// Reads the call's arguments. 0: it is no ioctl(2), or a 32-bit program's, where 29 is another call.
static __always_inline int ReadIoctl(__u64 pt_regs, struct ioctl_call* call) {
  struct registers registers;
  if (bpf_probe_read_kernel(&registers, sizeof registers, (const void*)(pt_regs + kRegistersAt))) return 0;
  if (registers.number != kIoctl || (registers.pstate & kMode32)) return 0;
  struct {
    __u64 x1, x2;
  } arguments;
  if (bpf_probe_read_kernel(&arguments, sizeof arguments, (const void*)(pt_regs + 8))) return 0;
  call->fd = (__s32)registers.orig_x0;
  call->request = (__u32)arguments.x1;
  call->argument = arguments.x2;
  return 1;
}
