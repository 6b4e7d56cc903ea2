#include "server/record/trace_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/unique_fd.h"

namespace tessera::server {
namespace {

constexpr std::uint64_t kMagic = 0x31435254'53534554;  // "TESSTRC1"
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kOfVGpu = 1, kOfProgram = 2;
constexpr std::size_t kNames = 4096;

struct NameSlot {
  std::uint64_t id;
  std::uint32_t kind;  // 0: free
  char text[52];
};
static_assert(sizeof(NameSlot) == 64);

Nanos WallAtZero() {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  return wall.tv_sec * kSecond + wall.tv_nsec - MonotonicNow();
}

}  // namespace

// As it lies in the file, which only this machine's daemons of this version read.
struct TraceRing::File {
  std::uint64_t magic;
  std::uint32_t version, unused;
  Nanos wall;
  std::uint64_t noted;  // records, ever
  NameSlot names[kNames];
  TraceRecord records[kRecords];
};

Result<std::unique_ptr<TraceRing>> TraceRing::Make(const std::string& path) {
  constexpr int kMode = 0600;
  if (!path.empty()) unlink(path.c_str());
  const UniqueFd fd(path.empty() ? memfd_create("tessera-trace", MFD_CLOEXEC)
                                 : open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode));
  if (!fd) return FailErrno("cannot make " + path);
  // All of it now: a page that finds no place later would end the daemon.
  if (const int error = posix_fallocate(fd.Get(), 0, sizeof(File)); error != 0) {
    if (!path.empty()) unlink(path.c_str());
    return Fail(error, "no space for " + path + ": " + std::strerror(error));
  }
  void* const mapped = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.Get(), 0);
  if (mapped == MAP_FAILED) return FailErrno("cannot map " + path);
  auto* const file = static_cast<File*>(mapped);
  file->version = kVersion;
  file->wall = WallAtZero();
  file->magic = kMagic;
  return std::unique_ptr<TraceRing>(new TraceRing(file));
}

TraceRing::~TraceRing() { munmap(file_, sizeof(File)); }

void TraceRing::Note(const TraceRecord& record) {
  file_->records[file_->noted % kRecords] = record;
  std::atomic_signal_fence(std::memory_order_release);  // who is killed between has noted it not at all
  ++file_->noted;
}

void TraceRing::Name(std::uint32_t kind, std::uint64_t id, std::string_view name) {
  NameSlot& slot = file_->names[(id * 2 + kind) % kNames];
  slot = {.id = id, .kind = kind, .text = {}};
  name.substr(0, sizeof slot.text - 1).copy(slot.text, sizeof slot.text - 1);
}

void TraceRing::NameVGpu(std::uint64_t id, std::string_view name) { Name(kOfVGpu, id, name); }
void TraceRing::NameProgram(pid_t pid, std::string_view name) {
  Name(kOfProgram, static_cast<std::uint64_t>(pid), name);
}

TraceCopy TraceRing::CopyOf(const File& file, Nanos since) {
  TraceCopy copy{.wall = file.wall};
  const std::uint64_t first = file.noted - std::min<std::uint64_t>(file.noted, kRecords);
  for (std::uint64_t i = first; i < file.noted; ++i) {
    const TraceRecord& record = file.records[i % kRecords];
    if (record.at >= since) copy.records.push_back(record);
  }
  copy.whole = first == 0 || file.records[first % kRecords].at < since;
  for (const NameSlot& slot : file.names) {
    const std::string text(slot.text, strnlen(slot.text, sizeof slot.text));
    if (slot.kind == kOfVGpu) copy.vgpus[slot.id] = text;
    if (slot.kind == kOfProgram) copy.programs[static_cast<pid_t>(slot.id)] = text;
  }
  return copy;
}

TraceCopy TraceRing::Copy(Nanos since) const {
  TraceCopy copy = CopyOf(*file_, since);
  copy.now = MonotonicNow();
  copy.wall = WallAtZero();  // the wall clock may have been set since
  return copy;
}

std::string TraceRing::Bytes() const { return {reinterpret_cast<const char*>(file_), sizeof(File)}; }

Result<TraceCopy> TraceRing::Load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return FailErrno("cannot read " + path);
  auto file = std::make_unique<File>();
  in.read(reinterpret_cast<char*>(file.get()), sizeof(File));
  if (!in || file->magic != kMagic || file->version != kVersion)
    return Fail(EBADMSG, path + " is not a trace of this version");
  TraceCopy copy = CopyOf(*file, std::numeric_limits<Nanos>::min());
  for (const TraceRecord& record : copy.records) copy.now = std::max(copy.now, record.at);
  return copy;
}

}  // namespace tessera::server
