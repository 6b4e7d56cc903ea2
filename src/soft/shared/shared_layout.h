// The bytes of /dev/shm/tessera-soft-*: what all processes map. Only shared_state.cc, shared_holds.cc, mps_servers.cc,
// arbiter.cc, steering.cc, checkpoint_request.cc and memory_steps.cc look inside.
//
// Whatever a process leaves half done when it is killed must not matter to the others: counters belong to one process
// each, sums are made when they are asked for, and what is in use is marked last.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "soft/shared/process_id.h"
#include "soft/shared/robust_mutex.h"
#include "soft/shared/spec.h"

namespace tessera::soft {

inline constexpr std::uint64_t kSharedMagic = 0x0034304646545354;
inline constexpr int kMaxProcesses = 1024;
inline constexpr int kMaxHolds = 16384;

enum class Frozen : std::uint32_t;          // shared_state.h
enum class MpsServerState : std::uint32_t;  // mps_servers.h

// Use of one device by one process. Written by that process, except `frozen` and `slice`.
struct SharedUse {
  std::atomic<std::uint64_t> bytes;
  std::atomic<Nanos> busy;
  std::atomic<std::uint32_t> contexts;
  std::atomic<Frozen> frozen;
  std::atomic<Nanos> slice;    // of its contexts; 0: the spec's
  std::atomic<Nanos> overrun;  // how much longer the last turn was than its slice, for the next to make up for
  std::atomic<std::uint32_t> kernel_steps;  // how many are being executed: see memory_steps.h
  std::atomic<std::uint32_t> copy_steps;
};

// The part of a process in MPS: see mps_servers.h. Written under the layout's mutex; `server` last, once for good.
struct SharedMps {
  ProcessId server;                   // whose client the process is; a server's own; pid 0: outside of MPS
  std::uint32_t server_slot;          // of the server, as long as it lives
  std::uint32_t multiprocessors;      // of a client: its ceiling; 0: all
  double percentage;                  // of a server: the ceiling of clients to come, in (0, 100]
  std::atomic<MpsServerState> state;  // of a server
  std::atomic<std::int32_t> ended;    // of a client: the CUresult that ended it; 0: it lives
  std::int64_t culprit;               // of a server: the process number of the client whose fault was the last one
  std::atomic<Nanos> server_seen;     // of a client: when it last saw its server alive (MonotonicNow)
};

// How other processes ask one for the steps of a checkpoint: see checkpoint_request.h. Who asks holds `asking` and
// writes all up to `to`, then counts `asked` up; the thread that answers writes the rest, `answered` last.
struct SharedCheckpoint {
  RobustMutex asking;
  ProcessId asker, asked_process;              // who asks whom: the slot may have passed on to another process
  std::uint32_t step;                          // CheckpointStep
  std::uint32_t timeout_ms;                    // of the lock; 0: none
  std::int32_t to[kMaxDevices];                // of the restore: where what was on each device goes
  std::atomic<std::uint32_t> asked, answered;  // futex words: how many requests there were
  std::atomic<std::int32_t> result;            // CUresult of the last one
  std::atomic<std::int32_t> state;             // CUprocessState
  std::atomic<std::int32_t> thread;            // that answers; 0: the process does not use the driver
};

struct SharedSlot {
  ProcessId process;  // pid 0: free
  SharedMps mps;
  SharedCheckpoint checkpoint;
  SharedUse use[kMaxDevices];
};

// One hold on memory that several processes may have: see shared_holds.h.
struct SharedHold {
  std::uint64_t memory;  // 0: free
  std::uint64_t bytes;
  std::uint32_t slot;
  std::uint16_t device;
  std::uint16_t charged;  // 1 for one of the holds on the same memory
};

// A context that executes kernels or waits for that. `granted` is a futex word: 1 once it is its turn.
struct SharedTurn {
  ProcessId process;  // pid 0: free
  std::uint64_t ticket;
  std::uint32_t slot;
  std::atomic<std::uint32_t> granted;
  Nanos granted_at;               // CLOCK_MONOTONIC; written before granted
  std::uint32_t multiprocessors;  // that its kernel keeps busy
};

struct SharedDevice {
  RobustMutex mutex;                                   // guards the turns and who holds the device
  std::int32_t holder TESSERA_GUARDED_BY(mutex);       // one of those that execute; -1: nobody does
  std::uint32_t turn_count TESSERA_GUARDED_BY(mutex);  // turns beyond were never used
  std::uint64_t next_ticket TESSERA_GUARDED_BY(mutex);
  std::atomic<Nanos> slice_end;        // of the holder
  std::atomic<std::uint32_t> waiting;  // contexts that could execute if the holder and its group left
  std::atomic<std::uint32_t> demand;   // multiprocessors that those who execute keep busy
  std::atomic<Nanos> link_free[2];     // by CopyDirection: when the link has nothing reserved any more
  SharedTurn turns[kMaxProcesses];
};

struct SharedLayout {
  std::atomic<std::uint64_t> magic;  // written last: all else is valid
  std::uint64_t bytes;               // sizeof(SharedLayout) of who made it: other versions differ
  std::uint32_t pid_namespace;       // of who made it: who uses it is in that one or inside, or is not noticed to end
  Spec spec;
  char uuid[kMaxDevices][16];
  RobustMutex mutex;  // guards the slots' owners, the holds and the decision whether an allocation fits
  std::uint32_t slot_count TESSERA_GUARDED_BY(mutex);  // slots beyond were never used
  SharedSlot slots[kMaxProcesses];
  SharedDevice devices[kMaxDevices];
  std::uint64_t next_memory TESSERA_GUARDED_BY(mutex);
  std::uint32_t hold_count TESSERA_GUARDED_BY(mutex);  // holds beyond were never used
  SharedHold holds[kMaxHolds] TESSERA_GUARDED_BY(mutex);
};

// Other processes read these bytes: no pointers, no padding that moves, no lock behind an atomic.
static_assert(std::is_trivially_copyable_v<Spec> && sizeof(Spec) == 56);
static_assert(sizeof(ProcessId) == 16 && sizeof(SharedUse) == 48 && sizeof(SharedTurn) == 48);
static_assert(sizeof(SharedHold) == 24);
static_assert(sizeof(SharedMps) == 56 && sizeof(SharedCheckpoint) % 8 == 0);
static_assert(sizeof(SharedSlot) == 72 + sizeof(SharedCheckpoint) + kMaxDevices * sizeof(SharedUse));
static_assert(std::atomic<Nanos>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace tessera::soft
