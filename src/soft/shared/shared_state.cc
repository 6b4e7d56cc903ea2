#include "soft/shared/shared_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <system_error>

#include "soft/shared/shared_holds.h"
#include "soft/shared/shared_layout.h"

namespace tessera::soft {
namespace {

std::span<SharedSlot> UsedSlots(SharedLayout& layout) TESSERA_REQUIRES(layout.mutex) {
  return {layout.slots, layout.slot_count};
}

std::uint32_t IndexOf(const SharedLayout& layout, const SharedSlot& slot) {
  return static_cast<std::uint32_t>(&slot - layout.slots);
}

// What was done to the process on the device, and counted of it.
void ForgetSteering(SharedUse& use) {
  use.busy = 0;
  use.frozen = Frozen::kNothing;
  use.slice = 0;
  use.overrun = 0;
}

// The owner goes last: as long as it is there, the next one to look finishes what was left half done.
void Clear(SharedLayout& layout, SharedSlot& slot) TESSERA_REQUIRES(layout.mutex) {
  DropHoldsOf(layout, IndexOf(layout, slot));
  for (SharedUse& use : slot.use) {
    ForgetSteering(use);
    use.bytes = 0;
    use.contexts = 0;
    use.kernel_steps = 0;
    use.copy_steps = 0;
  }
  slot.mps.server = {};
  slot.mps.server_slot = 0;
  slot.mps.multiprocessors = 0;
  slot.mps.percentage = 0;
  slot.mps.state = {};
  slot.mps.ended = 0;
  slot.mps.culprit = 0;
  slot.mps.server_seen = 0;
  slot.checkpoint.thread = 0;
  slot.checkpoint.state = 0;
  slot.process = {};
}

// Frees the slots of processes that have ended.
void Reap(SharedLayout& layout) TESSERA_REQUIRES(layout.mutex) {
  for (SharedSlot& slot : UsedSlots(layout)) {
    if (slot.process.pid != 0 && !slot.process.Alive(layout.pid_namespace)) Clear(layout, slot);
  }
}

std::uint64_t UsedOn(SharedLayout& layout, int device) TESSERA_REQUIRES(layout.mutex) {
  std::uint64_t used = HeldBytes(layout, device);
  for (const SharedSlot& slot : UsedSlots(layout)) {
    if (slot.process.pid != 0) used += slot.use[device].bytes;
  }
  return used;
}

// Whether the device has `bytes` left.
bool Fits(SharedLayout& layout, int device, std::uint64_t bytes) TESSERA_REQUIRES(layout.mutex) {
  const std::uint64_t capacity = layout.spec.memory_bytes;
  for (const bool reaped : {false, true}) {
    if (reaped) Reap(layout);
    const std::uint64_t used = UsedOn(layout, device);
    if (used <= capacity && bytes <= capacity - used) return true;
  }
  return false;
}

// 16 bytes that look random and are the same whenever the same state is made again (FNV-1a).
void MakeUuid(const std::string& path, int device, char* uuid) {
  std::uint64_t hash = 14695981039346656037u;
  const auto mix = [&](unsigned char byte) { hash = (hash ^ byte) * 1099511628211u; };
  for (const char c : path) mix(static_cast<unsigned char>(c));
  mix(static_cast<unsigned char>(device));
  for (int i = 0; i < 16; ++i) {
    mix(static_cast<unsigned char>(i));
    uuid[i] = static_cast<char>(hash >> 32);
  }
}

// Makes the file anew. The caller has locked it exclusively, so no mutex in it is held; a crash leaves magic 0.
Result<void> Format(int file, const std::string& path, const Spec& spec) TESSERA_NO_THREAD_SAFETY_ANALYSIS {
  if (ftruncate(file, 0) != 0) return FailErrno("soft GPU: empty " + path);
  // Without the reservation a full /dev/shm would show up as SIGBUS at some later access.
  if (const int error = posix_fallocate(file, 0, sizeof(SharedLayout)); error != 0) {
    return Fail(error,
                "soft GPU: reserve " + std::to_string(sizeof(SharedLayout) / 1024) + " KiB for " + path + ": " +
                    std::strerror(error),
                "make room in /dev/shm");
  }
  void* bytes = mmap(nullptr, sizeof(SharedLayout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) return FailErrno("soft GPU: map " + path);
  auto* layout = static_cast<SharedLayout*>(bytes);
  layout->bytes = sizeof(SharedLayout);
  layout->spec = spec;
  layout->pid_namespace = ProcessId::Self().pid_namespace;
  layout->mutex.Initialize();
  for (SharedSlot& slot : layout->slots) slot.checkpoint.asking.Initialize();
  // Not the numbers that another state gives: what is exported may get into the hands of its processes.
  if (getrandom(&layout->next_memory, sizeof layout->next_memory, 0) != sizeof layout->next_memory) {
    return FailErrno("soft GPU: get a random number");
  }
  for (int device = 0; device < kMaxDevices; ++device) {
    MakeUuid(path, device, layout->uuid[device]);
    layout->devices[device].mutex.Initialize();
    layout->devices[device].holder = -1;
  }
  layout->magic.store(kSharedMagic, std::memory_order_release);
  munmap(bytes, sizeof(SharedLayout));
  return {};
}

// The user that $TESSERA_SOFT_USER names; nothing without it, or if it is no number.
std::optional<uid_t> NamedUser() {
  const char* named = std::getenv("TESSERA_SOFT_USER");
  uid_t user = 0;
  if (named == nullptr) return {};
  const auto [end, error] = std::from_chars(named, named + std::strlen(named), user);
  if (error != std::errc() || *end != '\0') return {};
  return user;
}

Result<UniqueFd> OpenFile(const std::string& path) {
  const uid_t owner = NamedUser().value_or(geteuid());
  // Only its owner makes it: with O_CREAT, fs.protected_regular keeps others from a file that is there (proc(5)).
  UniqueFd file(open(path.c_str(), O_RDWR | (owner == geteuid() ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file && errno == ENOENT && owner != geteuid())
    return FailErrno("soft GPU: open " + path, "start the daemon of user " + std::to_string(owner) +
                                                   ", with the same TESSERA_SOFT_USER and TESSERA_SOFT_NAME");
  if (!file) return FailErrno("soft GPU: open " + path, "the soft GPU keeps its state there: make /dev/shm writable");
  struct stat status = {};
  if (fstat(file.Get(), &status) != 0) return FailErrno("soft GPU: look at " + path);
  // /dev/shm is open to all: take nobody else's file for ours.
  if (!S_ISREG(status.st_mode) || status.st_uid != owner) {
    return Fail(EPERM, "soft GPU: " + path + " does not belong to user " + std::to_string(owner),
                "remove it or set TESSERA_SOFT_NAME");
  }
  if (NamedUser() && owner == geteuid() && fchmod(file.Get(), 0666) != 0)
    return FailErrno("soft GPU: open " + path + " to all users");
  return file;
}

// The mapped file if it is complete and of this version; null if it has to be made anew.
Result<SharedLayout*> MapFile(int file, const std::string& path) {
  struct stat status = {};
  if (fstat(file, &status) != 0) return FailErrno("soft GPU: look at " + path);
  if (status.st_size == 0) return nullptr;
  const auto other_version = [&] {
    return Fail(EPROTO, "soft GPU: " + path + " is in use by another version of Tessera",
                "stop the programs that use it or set TESSERA_SOFT_NAME");
  };
  if (status.st_size != sizeof(SharedLayout)) return other_version();
  void* bytes = mmap(nullptr, sizeof(SharedLayout), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) return FailErrno("soft GPU: map " + path);
  auto* layout = static_cast<SharedLayout*>(bytes);
  const std::uint64_t magic = layout->magic.load(std::memory_order_acquire);
  if (magic == kSharedMagic && layout->bytes == sizeof(SharedLayout)) return layout;
  munmap(bytes, sizeof(SharedLayout));
  if (magic == 0) return nullptr;
  return other_version();
}

}  // namespace

std::string SharedState::DefaultPath() {
  const char* name = std::getenv("TESSERA_SOFT_NAME");
  std::string path = "/dev/shm/tessera-soft-" + std::to_string(NamedUser().value_or(geteuid()));
  if (name != nullptr && *name != '\0') {
    path += "-";
    for (const char* c = name; *c != '\0'; ++c) path += *c == '/' ? '_' : *c;
  }
  return path;
}

// Everybody who uses the state holds the file locked shared. So who gets it exclusively knows that nobody uses it, and
// that all it says is history. flock(2) changes a lock by giving it up first: hence what is there is looked at under
// the final, shared lock, and if it is not complete the round is made again.
Result<std::unique_ptr<SharedState>> SharedState::Attach(const std::string& path, const std::string& text) {
  const auto wanted = ParseSpec(text);
  if (!wanted) return std::unexpected(wanted.error());
  auto file = OpenFile(path);
  if (!file) return std::unexpected(file.error());
  for (;;) {
    if (flock(file->Get(), LOCK_EX | LOCK_NB) == 0) {
      if (const auto made = Format(file->Get(), path, *wanted); !made) {
        static_cast<void>(ftruncate(file->Get(), 0));
        return std::unexpected(made.error());
      }
    }
    while (flock(file->Get(), LOCK_SH) != 0) {
      if (errno != EINTR) return FailErrno("soft GPU: lock " + path);
    }
    const auto layout = MapFile(file->Get(), path);
    if (!layout) return std::unexpected(layout.error());
    if (*layout == nullptr) continue;

    std::unique_ptr<SharedState> state(new SharedState(std::move(*file), *layout));
    if (!text.empty() && state->spec() != *wanted) {
      return Fail(EEXIST, "soft GPU: programs that run use it as " + FormatSpec(state->spec()) + ", not " + text,
                  "use the same TESSERA_SOFT, or another TESSERA_SOFT_NAME for a soft GPU of its own");
    }
    if (const auto taken = state->TakeSlot(); !taken) return std::unexpected(taken.error());
    return state;
  }
}

Result<void> SharedState::TakeSlot() {
  const ProcessId self = ProcessId::Self();
  const RobustLock lock(layout_->mutex);
  Reap(*layout_);
  const auto used = UsedSlots(*layout_);
  const auto free = std::ranges::find(used, 0, [](const SharedSlot& slot) { return slot.process.pid; });
  if (free == used.end() && used.size() == kMaxProcesses) {
    return Fail(ENOSPC, "soft GPU: " + std::to_string(kMaxProcesses) + " processes use it, no more fit");
  }
  slot_ = free != used.end() ? &*free : &layout_->slots[layout_->slot_count++];
  Clear(*layout_, *slot_);
  slot_->process = self;
  return {};
}

SharedState::~SharedState() {
  // A forked child has its parent's object, but not its slot.
  if (slot_ != nullptr && slot_->process.pid == getpid()) {
    const RobustLock lock(layout_->mutex);
    Clear(*layout_, *slot_);
  }
  munmap(layout_, sizeof(SharedLayout));
}

const Spec& SharedState::spec() const { return layout_->spec; }

std::array<char, 16> SharedState::Uuid(int device) const {
  std::array<char, 16> uuid;
  std::ranges::copy(layout_->uuid[device], uuid.begin());
  return uuid;
}

bool SharedState::Charge(int device, std::uint64_t bytes) {
  const RobustLock lock(layout_->mutex);
  if (!Fits(*layout_, device, bytes)) return false;
  slot_->use[device].bytes += bytes;
  return true;
}

void SharedState::Uncharge(int device, std::uint64_t bytes) { slot_->use[device].bytes -= bytes; }

std::uint64_t SharedState::NewMemory() {
  const RobustLock lock(layout_->mutex);
  if (++layout_->next_memory == 0) ++layout_->next_memory;
  return layout_->next_memory;
}

std::int32_t SharedState::Hold(int device, std::uint64_t memory, std::uint64_t bytes) {
  const RobustLock lock(layout_->mutex);
  if (!IsHeld(*layout_, memory) && !Fits(*layout_, device, bytes)) return kNoHold;
  return AddHold(*layout_, {.memory = memory,
                            .bytes = bytes,
                            .slot = IndexOf(*layout_, *slot_),
                            .device = static_cast<std::uint16_t>(device)});
}

void SharedState::LetGo(std::int32_t hold) {
  const RobustLock lock(layout_->mutex);
  DropHold(*layout_, hold);
}

int SharedState::DeviceOf(std::uint64_t memory) {
  const RobustLock lock(layout_->mutex);
  const std::span used(layout_->holds, layout_->hold_count);
  const auto found = std::ranges::find(used, memory, &SharedHold::memory);
  return found == used.end() ? -1 : found->device;
}

DeviceUse SharedState::TakeOff(int device) {
  const RobustLock lock(layout_->mutex);
  SharedUse& use = slot_->use[device];
  ForgetSteering(use);
  return {use.bytes.exchange(0), use.contexts.exchange(0)};
}

bool SharedState::PutOn(const std::array<DeviceUse, kMaxDevices>& uses, std::vector<WantedHold>& holds) {
  const RobustLock lock(layout_->mutex);
  for (int device = 0; device < spec().devices; ++device) {
    std::uint64_t bytes = uses[device].bytes;
    for (const WantedHold& wanted : holds) bytes += wanted.device == device ? wanted.bytes : 0;
    if (bytes != 0 && !Fits(*layout_, device, bytes)) return false;
  }
  for (WantedHold& wanted : holds) {
    wanted.hold = AddHold(*layout_, {.memory = wanted.memory,
                                     .bytes = wanted.bytes,
                                     .slot = IndexOf(*layout_, *slot_),
                                     .device = static_cast<std::uint16_t>(wanted.device)});
    if (wanted.hold != kNoHold) continue;
    for (WantedHold& made : holds) {
      if (made.hold != kNoHold) DropHold(*layout_, std::exchange(made.hold, kNoHold));
    }
    return false;
  }
  for (int device = 0; device < spec().devices; ++device) {
    SharedUse& use = slot_->use[device];
    if (uses[device].contexts != 0) ForgetSteering(use);  // these channels are new
    use.bytes += uses[device].bytes;
    use.contexts += uses[device].contexts;
  }
  return true;
}

void SharedState::AddContexts(int device, int count) {
  slot_->use[device].contexts += static_cast<std::uint32_t>(count);
}

std::uint64_t SharedState::UsedBytes(int device) {
  const RobustLock lock(layout_->mutex);
  Reap(*layout_);
  return UsedOn(*layout_, device);
}

std::vector<ProcessUse> SharedState::Processes(int device) {
  const RobustLock lock(layout_->mutex);
  Reap(*layout_);
  std::vector<ProcessUse> processes;
  for (const SharedSlot& slot : UsedSlots(*layout_)) {
    const SharedUse& use = slot.use[device];
    const std::uint64_t bytes = use.bytes + HeldBytesOf(*layout_, IndexOf(*layout_, slot), device);
    const ProcessUse process = {slot.process.Here(), bytes, use.contexts, use.busy, use.frozen, slot.mps.server.Here()};
    if (process.pid != 0 && (process.bytes != 0 || process.contexts != 0 || process.busy != 0)) {
      processes.push_back(process);
    }
  }
  return processes;
}

Nanos SharedState::ReserveTransfer(int device, CopyDirection direction, std::uint64_t bytes) {
  std::atomic<Nanos>& link_free = layout_->devices[device].link_free[static_cast<int>(direction)];
  const double seconds = static_cast<double>(bytes) / static_cast<double>(spec().pcie_bytes_per_second);
  const Nanos duration = static_cast<Nanos>(seconds * kSecond);
  Nanos busy_until = link_free.load();
  Nanos end = 0;
  do {
    end = std::max(busy_until, MonotonicNow()) + duration;
  } while (!link_free.compare_exchange_weak(busy_until, end));
  return end;
}

}  // namespace tessera::soft
