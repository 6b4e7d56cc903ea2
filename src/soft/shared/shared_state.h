// State of the soft GPUs that all processes of a user share, in /dev/shm/tessera-soft-UID[-NAME]. With
// $TESSERA_SOFT_USER, which names a user by number, those of that user are used; if the user itself sets it, all users
// may use them, and break them: it is for tests.
//
// The first process makes it, after $TESSERA_SOFT; once none is left the next one makes it again. Each process has
// a slot with what it holds; the sum over the slots of living processes is what is in use, so nothing has to be given
// back by who dies. Layout in shared_layout.h.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "soft/shared/spec.h"

namespace tessera::soft {

inline constexpr std::int32_t kNoHold = -1;

struct SharedLayout;
struct SharedSlot;

// The part of a process's work on a device that stands still until it is thawed. Running work stops between two
// instructions of a kernel or two pieces of a copy. kAll is kernels, copies and waits for memory.
enum class Frozen : std::uint32_t { kNothing = 0, kKernels = 1, kAll = 2 };

// What a process uses of one device, without memory that others may hold, too.
struct DeviceUse {
  std::uint64_t bytes = 0;
  std::uint32_t contexts = 0;
};

// A hold on memory that is to be made.
struct WantedHold {
  int device = 0;
  std::uint64_t memory = 0;
  std::uint64_t bytes = 0;
  std::int32_t hold = kNoHold;  // what was made
};

// Use of one device by a living process.
struct ProcessUse {
  pid_t pid = 0;
  std::uint64_t bytes = 0;
  std::uint32_t contexts = 0;
  Nanos busy = 0;  // time for which its kernels had the device, since it attached; all that the host lagged is in it
  Frozen frozen = Frozen::kNothing;
  pid_t mps_server = 0;  // whose client it is; a server's own pid; 0: outside of MPS
};

enum class CopyDirection { kToDevice = 0, kToHost = 1 };

class SharedState {
 public:
  // Where the state lies for this user or $TESSERA_SOFT_USER, and $TESSERA_SOFT_NAME.
  static std::string DefaultPath();

  // Attaches this process, with a slot of its own. An empty `spec` takes what is there. Fails with EEXIST when others
  // use the state with another spec, ENOSPC when /dev/shm is full or all slots are taken.
  static Result<std::unique_ptr<SharedState>> Attach(const std::string& path, const std::string& spec);
  ~SharedState();
  SharedState(const SharedState&) = delete;

  const Spec& spec() const;
  std::array<char, 16> Uuid(int device) const;

  // Memory of this process. Charge returns false, and changes nothing, when the device does not have `bytes` left.
  bool Charge(int device, std::uint64_t bytes);
  void Uncharge(int device, std::uint64_t bytes);
  // Memory that other processes can hold, too: a number for it, never 0, that no other has. It is charged once, to one
  // of those who hold it, for as long as one of them lives and does not let go. Hold returns what LetGo takes, or
  // kNoHold where the memory is in use by nobody yet and the device does not have `bytes` left.
  std::uint64_t NewMemory();
  std::int32_t Hold(int device, std::uint64_t memory, std::uint64_t bytes);
  void LetGo(std::int32_t hold);
  // The device that has the memory, -1 if nobody holds it.
  int DeviceOf(std::uint64_t memory);
  void AddContexts(int device, int count);

  // Of a checkpoint, while nothing of this process runs: takes its charge and its contexts off the device, and what was
  // set there for it (freeze, slice). Holds are let go one by one.
  DeviceUse TakeOff(int device);
  // Puts them on devices, by their numbers, and makes the holds. False, and nothing changes, if one of the devices does
  // not have that much left.
  bool PutOn(const std::array<DeviceUse, kMaxDevices>& uses, std::vector<WantedHold>& holds);
  std::uint64_t UsedBytes(int device);  // by all processes

  // Living processes that hold memory or contexts on the device or used it. Frees slots of dead ones on the way.
  std::vector<ProcessUse> Processes(int device);

  // Reserves the next free span for a transfer on the link of a device, which all processes share; returns when it
  // ends (MonotonicNow). The caller waits until then.
  Nanos ReserveTransfer(int device, CopyDirection direction, std::uint64_t bytes);

  // For the arbiter, steering and MPS.
  SharedSlot& slot() { return *slot_; }
  SharedLayout& layout() { return *layout_; }

 private:
  SharedState(UniqueFd file, SharedLayout* layout) : file_(std::move(file)), layout_(layout) {}
  Result<void> TakeSlot();

  UniqueFd file_;  // with a shared flock(2) for as long as this process may touch the state
  SharedLayout* layout_;
  SharedSlot* slot_ = nullptr;
};

}  // namespace tessera::soft
