// Plain C, for watch.bpf.c.
#pragma once

#include <linux/types.h>

// The arguments of an ioctl(2).
struct ioctl_call {
  __s32 fd;
  __u32 request;
  __u64 argument;
};
