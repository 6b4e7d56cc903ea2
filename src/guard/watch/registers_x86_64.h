// The registers of a program on x86-64 when one of its system calls returns. C, for watch.bpf.c, which runs in the
// kernel.
#pragma once

#include <linux/bpf.h>
// After linux/bpf.h, whose types they use.
#include <bpf/bpf_helpers.h>

#include "guard/watch/ioctl_call.h"

// The kernel's struct pt_regs from its byte 96.
struct registers {
  __u64 rdx, rsi, rdi, orig_rax, rip, cs;
};
enum { kRegistersAt = 96, kIoctl = 16, kUserCode64 = 0x33 };

// Reads the call's arguments, which are still in the registers. 0: it is no ioctl(2), or a 32-bit program's, where 16
// is another call.
static __always_inline int ReadIoctl(__u64 pt_regs, struct ioctl_call* call) {
  struct registers registers;
  if (bpf_probe_read_kernel(&registers, sizeof registers, (const void*)(pt_regs + kRegistersAt))) return 0;
  if (registers.orig_rax != kIoctl || (registers.cs & 0xffff) != kUserCode64) return 0;
  call->fd = (__s32)registers.rdi;
  call->request = (__u32)registers.rsi;
  call->argument = registers.rdx;
  return 1;
}
