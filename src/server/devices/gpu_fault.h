#pragma once

#include <cstdint>
#include <string>

namespace tessera::server {

// An error of a GPU, as its driver tells of it. It names no process: NVML does not.
struct GpuFault {
  enum class Kind {
    kXid,   // the driver reported a critical Xid: `xid`
    kEcc,   // memory had a double-bit error that ECC could not correct
    kLost,  // the GPU does not answer any more
  };
  std::uint32_t gpu = 0;  // index, as in GpuDriver::List
  Kind kind = Kind::kXid;
  std::uint64_t xid = 0;  // kXid: its number

  // For people: "Xid 31 (GPU memory page fault)". The meanings are those of NVIDIA's Xid catalogue
  // (docs.nvidia.com/deploy/xid-errors); an Xid without one is its number alone.
  std::string Text() const;
  // Whether the GPU is gone until it is reset: it is lost, or has told of an Xid that says so.
  bool Fatal() const;
  // Whether a program's own fault may have caused it: it says nothing of the GPU then.
  bool ByProgram() const;
};

}  // namespace tessera::server
