#pragma once

#include <string>
#include <vector>

#include "base/process/process_start.h"
#include "base/result.h"
#include "channel/rm/object_event.h"
#include "server/model/vgpu.h"
#include "wire/protocol.h"

namespace tessera::server {

// state.json, with the vGPUs and processes that a daemon that starts again must know, and vgpus.json, with the vGPUs
// that outlive a boot. Version 1 is
//   {"version":1,"vgpus":[{"name","gpu_uuid","uid","ephemeral","owner_pid","owner_start","memory_limit","memory_max",
//    "compute_request_pct","compute_limit_pct","compute_weight","compute_priority","goal","frozen","owner_froze",
//    "space","sm_limit_pct","sm_from_pct","sm_burst","gang","labels":{}}],
//    "processes":[{"pid","start","vgpu","frozen","objects":[[fd,client,parent,object,class,detail]]}],
//    "programs":[{"pid","start","gpu_uuid"}],"spaces":[{"name","gpu_uuid","uid"}],"draining":[gpu_uuid]}
// with bytes as integers and absent limits, goals, gangs and labels left out; what came later than the first release
// may be absent.
struct SavedVGpu {
  VGpuSpec spec;
  wire::Uuid gpu;
};

// A process that an operator adopted or froze.
struct SavedProcess {
  pid_t pid = 0;
  std::uint64_t start = 0;  // ProcessStart
  std::string vgpu;         // adopted by; empty: not adopted
  bool frozen = false;
  std::vector<channel::ObjectEvent> objects;  // by which its channels are known
};

// A program that had attached to a GPU.
struct SavedProgram {
  ProcessName name;
  wire::Uuid gpu;
};

// A space that was made to last.
struct SavedSpace {
  std::string name;
  wire::Uuid gpu;
  uid_t uid = 0;
};

struct SavedState {
  std::vector<SavedVGpu> vgpus;
  std::vector<SavedProcess> processes;
  std::vector<SavedProgram> programs;
  std::vector<SavedSpace> spaces;
  std::vector<wire::Uuid> draining;  // GPUs that take no newcomers, those that are not there now included
};

std::string FormatState(const SavedState& state);

// EBADMSG with the reason for anything else than what FormatState writes.
Result<SavedState> ParseState(const std::string& text);

// Reads the file; a missing one is empty.
Result<SavedState> LoadState(const std::string& path);
// The same; a file that cannot be read is renamed and logged, and its state is empty.
SavedState LoadStateOrSetAside(const std::string& path);

// Replaces the file: whoever reads it, even after a power failure, sees the old or the new one, whole.
Result<void> SaveState(const std::string& path, const std::string& text);

}  // namespace tessera::server
