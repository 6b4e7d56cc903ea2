#include "guard/watch/watch.h"

#include <asm/ptrace.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "channel/rm/driver_abi.h"
#include "guard/watch/watch_record.h"
#include "guard/watch/watch_scan.h"
#include "watch.skel.h"

namespace tessera::guard {
namespace {

namespace abi = channel::abi;

// Constants that watch.bpf.c repeats, because it is C.
static_assert(abi::kIoctlType << 8 == 0x4600 && abi::kFree == 0x29 && abi::kAlloc == 0x2b && abi::kDup == 0x34);
static_assert(abi::kRoot == 0 && abi::kRootNonPrivileged == 1 && abi::kRootClient == 0x41 && abi::kDevice == 0x80 &&
              abi::kMemoryLocal == 0x40 && abi::kChannelGroup == 0xa06c);
static_assert(abi::IsChannel(0xc36f) && abi::IsChannel(0xc46f) && abi::IsChannel(0xc56f) && abi::IsChannel(0xc86f) &&
              abi::IsChannel(0xc96f) && abi::IsChannel(0xca6f));
static_assert(sizeof(abi::Free) == 16 && sizeof(abi::Dup) == 28 && offsetof(abi::Dup, status) == 24);
static_assert(sizeof(abi::AllocShort) == 32 && offsetof(abi::AllocShort, status) == 28);
static_assert(sizeof(abi::Alloc) == 48 && offsetof(abi::Alloc, status) == 40 && offsetof(abi::Alloc, params) == 16);
static_assert(offsetof(abi::DeviceParams, device) == 0 && offsetof(abi::GroupParams, engine) == 12 &&
              offsetof(abi::MemoryParams, size) == 64);

// The processor's, in registers_*.h.
#if defined(__x86_64__)
static_assert(SYS_ioctl == 16 && offsetof(pt_regs, rdx) == 96 && offsetof(pt_regs, cs) == 136);
#else
static_assert(SYS_ioctl == 29 && offsetof(user_pt_regs, pstate) == 264 && offsetof(user_pt_regs, regs) == 0 &&
              PSR_MODE32_BIT == 0x10);
#endif

// The part of the ring that only exits may use: without them processes that are gone would be listed for ever.
constexpr std::uint32_t kKeptForExitsPart = 8;

// Bytes of a record in the ring: a header, and a multiple of 8.
constexpr std::uint32_t kRecordInRing = 8 + (sizeof(watch_record) + 7) / 8 * 8;

constexpr ino_t kInitialPidNamespace = 0xeffffffc;  // PROC_PID_INIT_INO of Linux's include/linux/proc_ns.h

constexpr char kElse[] = "; everything else works, but programs that were not started through Tessera stay unseen";

std::unexpected<Error> FailWatch(int code, const std::string& what) {
  const std::string why = "cannot watch the node's GPU programs: " + what + ": " + std::strerror(code);
  if (code == EPERM || code == EACCES)
    return Fail(EPERM, why, std::string("run the daemon as root or give it CAP_BPF and CAP_PERFMON") + kElse);
  if (code == ENOSYS || code == EINVAL || code == EOPNOTSUPP)
    return Fail(ENOSYS, why, std::string("use Linux 5.8 or newer with BPF") + kElse);
  return Fail(code, why, std::string("the watch is off") + kElse);
}

// The kernel's type information (BTF). With it the program can detect the last thread of a process.
bool KernelHasTypes() { return access("/sys/kernel/btf/vmlinux", R_OK) == 0; }

Result<void> Configure(watch_bpf& skeleton, const WatchOptions& options) {
  struct stat own;
  if (stat("/proc/self/ns/pid", &own) != 0) return FailWatch(errno, "/proc/self/ns/pid");
  if (own.st_ino != kInitialPidNamespace) {
    // As the kernel has it, not as stat(2) gives it.
    skeleton.rodata->kNamespaceDevice = std::uint64_t{major(own.st_dev)} << 20 | minor(own.st_dev);
    skeleton.rodata->kNamespaceInode = own.st_ino;
  }
  skeleton.rodata->kReportFailures = options.report_failures;
  skeleton.rodata->kRingBytes = options.ring_bytes;
  skeleton.rodata->kKeptForExits = options.ring_bytes / kKeptForExitsPart;
  if (const int error = bpf_map__set_max_entries(skeleton.maps.ring, options.ring_bytes); error != 0)
    return FailWatch(-error, "size of the ring");
  return {};
}

WatchEvent FromRecord(const watch_record& record) {
  WatchEvent event;
  switch (record.kind) {
    case WATCH_ALLOC:
      event.kind = WatchEvent::Kind::kAlloc;
      break;
    case WATCH_FREE:
      event.kind = WatchEvent::Kind::kFree;
      break;
    case WATCH_DUP:
      event.kind = WatchEvent::Kind::kDup;
      break;
    default:
      event.kind = WatchEvent::Kind::kExit;
  }
  event.pid = static_cast<pid_t>(record.pid);
  event.host_pid = static_cast<pid_t>(record.host_pid);
  event.name.assign(record.name, strnlen(record.name, sizeof record.name));
  event.fd = record.fd;
  event.client = record.client;
  event.parent = record.parent;
  event.object = record.object;
  event.cls = record.cls;
  event.detail = record.detail;
  event.bytes = record.bytes;
  event.source_client = record.source_client;
  event.source_object = record.source_object;
  return event;
}

}  // namespace

void Watch::Unload::operator()(watch_bpf* skeleton) const { watch_bpf::destroy(skeleton); }
void Watch::Unload::operator()(ring_buffer* ring) const { ring_buffer__free(ring); }

Watch::Watch(Callback callback, Skeleton skeleton, std::size_t ring_records)
    : callback_(std::move(callback)), skeleton_(std::move(skeleton)), ring_records_(ring_records) {}

Watch::~Watch() = default;

Result<std::unique_ptr<Watch>> Watch::Start(Callback callback, const WatchOptions& options) {
  libbpf_set_print(nullptr);  // what it would print, the error says
  auto skeleton = Load(options, KernelHasTypes());
  // This libbpf may not understand a newer kernel's types.
  if (!skeleton && skeleton.error().code != EPERM && KernelHasTypes()) skeleton = Load(options, false);
  if (!skeleton) return std::unexpected(skeleton.error());

  std::unique_ptr<Watch> watch(
      new Watch(std::move(callback), std::move(*skeleton), options.ring_bytes / kRecordInRing));
  if (auto ok = watch->OpenRing(); !ok) return std::unexpected(ok.error());
  if (const int error = watch_bpf::attach(watch->skeleton_.get()); error != 0) return FailWatch(-error, "attach");
  watch->TellExisting();
  return watch;
}

Result<Watch::Skeleton> Watch::Load(const WatchOptions& options, bool types) {
  Skeleton skeleton(watch_bpf::open());
  if (!skeleton) return FailWatch(errno, "open");
  if (auto ok = Configure(*skeleton, options); !ok) return std::unexpected(ok.error());
  bpf_program__set_autoload(types ? skeleton->progs.OnMainThreadExit : skeleton->progs.OnLastThreadExit, false);
  // Raises RLIMIT_MEMLOCK itself on kernels that count BPF memory by it (libbpf 1.0 and newer).
  if (const int error = watch_bpf::load(skeleton.get()); error != 0) return FailWatch(-error, "load");
  return skeleton;
}

Result<void> Watch::OpenRing() {
  ring_.reset(ring_buffer__new(bpf_map__fd(skeleton_->maps.ring), OnRecord, this, nullptr));
  if (!ring_) return FailWatch(errno, "ring");
  return {};
}

// After attaching, so that no process is missed; one that began in between is told as existing without need.
void Watch::TellExisting() {
  const bool initial_namespace = skeleton_->rodata->kNamespaceInode == 0;
  for (const pid_t pid : FindGpuProcesses()) {
    if (pid == getpid()) continue;
    const auto key = static_cast<std::uint64_t>(pid);
    const std::uint8_t present = 1;
    bpf_map_update_elem(bpf_map__fd(skeleton_->maps.processes), &key, &present, BPF_ANY);
    WatchEvent event;
    event.kind = WatchEvent::Kind::kExisting;
    event.pid = pid;
    event.host_pid = initial_namespace ? pid : 0;
    event.name = ProcessName(pid);
    // Ended between the scan and the map, so that nothing would tell its exit.
    if (!event.name.empty()) Tell(std::move(event));
  }
}

int Watch::Fd() const { return ring_buffer__epoll_fd(ring_.get()); }

void Watch::Read() {
  // First, so that what was told before something was lost is told before the loss.
  const std::uint64_t lost = Lost();
  left_to_read_ = ring_records_;
  ring_buffer__consume(ring_.get());
  if (lost == lost_told_) return;
  WatchEvent event;
  event.kind = WatchEvent::Kind::kLost;
  event.lost = lost - std::exchange(lost_told_, lost);
  Tell(std::move(event));
}

std::uint64_t Watch::Lost() const { return __atomic_load_n(&skeleton_->bss->lost, __ATOMIC_RELAXED); }

int Watch::OnRecord(void* self, void* data, std::size_t bytes) {
  auto* watch = static_cast<Watch*>(self);
  watch_record record;
  if (bytes < sizeof record) return 0;
  std::memcpy(&record, data, sizeof record);
  if (static_cast<pid_t>(record.pid) != getpid()) watch->Tell(FromRecord(record));
  return --watch->left_to_read_ == 0 ? -1 : 0;  // -1 ends the reading after this one
}

void Watch::Tell(WatchEvent event) {
  event.sequence = ++last_sequence_;
  callback_(event);
}

}  // namespace tessera::guard
