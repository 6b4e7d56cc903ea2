#include "shim/memory/imports.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "base/seqpacket.h"
#include "shim/gate/capture.h"
#include "shim/load/green_contexts.h"
#include "shim/load/real.h"
#include "shim/memory/paging.h"
#include "shim/process/say.h"
#include "shim/session/daemon_watch.h"
#include "shim/session/session.h"
#include "wire/units.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// Programs look for a new daemon every kReconnectEvery, and it waits some seconds for those of the last one.
constexpr Nanos kTellingTakes = 5 * kSecond;
constexpr unsigned kLookAgainUs = 20'000;

// Buffer ids of imports; the heap's and the driver's own count up from 1.
std::atomic<std::uint64_t> next_id{1ull << 62};

struct Import {
  wire::ExportKey key;
  pager::Block block;
  CUdevice device = 0;       // that the memory is on
  CUdevice importer = 0;     // that it was opened for
  bool open_to_own = true;   // the memory's own device can use this mapping
  CUdeviceptr reserved = 0;  // addresses, for as many whole chunks
  std::uint64_t chunk_bytes = 0;
  std::uint32_t chunks = 0;        // pieces in all
  std::uint32_t pieces = 0;        // of them: mapped
  std::uint64_t mapped_bytes = 0;  // what these come to
  int uses = 0;                    // 0: it is to be unmapped as soon as that may be
};

ForkMutex opening;        // one at a time maps; taken before `imports_mutex`
ForkMutex imports_mutex;  // guards the table
std::atomic<std::size_t> import_count{0};

// By the begin of the reservation.
std::map<CUdeviceptr, Import>& Imports() TESSERA_REQUIRES(imports_mutex) {
  static auto* imports = new std::map<CUdeviceptr, Import>;
  return *imports;
}

void Unmap(const Import& import) {
  const pager::Driver& driver = RealDriver();
  if (import.mapped_bytes > 0) driver.Unmap(import.reserved, import.mapped_bytes);
  driver.AddressFree(import.reserved, import.chunks * import.chunk_bytes);
}

// Maps a piece behind those that are mapped: a whole chunk, or some units of a sparse one. The driver maps no part of a
// piece, and nothing beyond its end: so its size is found by trying.
CUresult MapNext(Import& import, const UniqueFd& fd) {
  const pager::Driver& driver = RealDriver();
  pager::Driver::Handle handle = 0;
  CUresult result = driver.Import(&handle, reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd.Get())),
                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  std::uint64_t bytes = import.chunk_bytes;
  result = driver.Map(import.reserved + import.mapped_bytes, bytes, 0, handle, 0);
  for (std::uint64_t part = wire::kUnitBytes; result != CUDA_SUCCESS && part < import.chunk_bytes;
       part += wire::kUnitBytes) {
    bytes = part;
    result = driver.Map(import.reserved + import.mapped_bytes, bytes, 0, handle, 0);
  }
  driver.Release(handle);  // the mapping keeps the memory
  if (result != CUDA_SUCCESS) return result;
  ++import.pieces;
  import.mapped_bytes += bytes;
  return result;
}

// Lets the importer's device and the memory's own reach it; the importer's alone if the driver gives no other access,
// as it may where the process has no context on the memory's device.
CUresult SetAccess(Import& import) {
  CUmemAccessDesc access[2] = {};
  for (CUmemAccessDesc& each : access) {
    each.location = {CU_MEM_LOCATION_TYPE_DEVICE, import.importer};
    each.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  access[1].location.id = import.device;
  const auto set = [&](std::size_t count) {
    return RealDriver().SetAccess(import.reserved, import.mapped_bytes, access, count);
  };
  if (import.device == import.importer) return set(1);
  const CUresult both = set(2);
  import.open_to_own = both == CUDA_SUCCESS;
  return import.open_to_own ? both : set(1);
}

// The device with this UUID; none where the program does not see it (CUDA_VISIBLE_DEVICES).
std::optional<CUdevice> DeviceWith(const wire::Uuid& uuid) {
  int count = 0;
  if (REAL_AS(cuDeviceGetCount, int*)(&count) != CUDA_SUCCESS) return std::nullopt;
  for (CUdevice device = 0; device < count; ++device) {
    CUuuid each;
    if (REAL_AS(cuDeviceGetUuid_v2, CUuuid*, CUdevice)(&each, device) == CUDA_SUCCESS &&
        memcmp(each.bytes, uuid.bytes, sizeof uuid.bytes) == 0)
      return device;
  }
  return std::nullopt;
}

// The memory's descriptors from `first` on, as many as come at once.
CUresult Ask(const wire::ExportKey& key, std::uint32_t first, std::uint32_t gpu, wire::Imported* terms,
             std::span<UniqueFd> fds) {
  wire::Header header;
  const auto message = wire::Make(wire::Import{.key = key, .first = first}, gpu);
  if (Session::Instance().Ask(message, *terms, header, fds)) return CUDA_SUCCESS;
  if (header.type == wire::Refused::kType) return CUDA_ERROR_INVALID_VALUE;
  Say("an IPC handle cannot be opened: its memory is with the daemon, which is gone; start tesserad");
  return CUDA_ERROR_MAP_FAILED;
}

CUresult MapAll(Import& import, std::uint32_t gpu, wire::Imported terms, std::span<UniqueFd> fds) {
  for (;;) {
    for (UniqueFd& fd : fds.first(std::min<std::size_t>(fds.size(), terms.count))) {
      if (!fd) {
        Say("an IPC handle cannot be opened: this program has no file descriptor left; raise its limit (ulimit -n)");
        return CUDA_ERROR_OPERATING_SYSTEM;
      }
      if (const CUresult result = MapNext(import, fd); result != CUDA_SUCCESS) return result;
      fd.Reset();
    }
    if (import.pieces >= terms.chunks || terms.count == 0) break;
    const CUresult result = Ask(import.key, import.pieces, gpu, &terms, fds);
    if (result != CUDA_SUCCESS) return result;
    if (terms.chunks != import.chunks) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool all = import.pieces == terms.chunks && import.mapped_bytes >= terms.offset + terms.bytes;
  return all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Map(const Importer& importer, const wire::ExportKey& key, Import* made) TESSERA_REQUIRES(opening) {
  wire::Imported terms;
  UniqueFd fds[kMostDescriptors];
  CUresult result = Ask(key, 0, importer.gpu, &terms, fds);
  if (result != CUDA_SUCCESS) return result;
  const auto device = DeviceWith(terms.gpu);
  if (!device) {
    Say("an IPC handle cannot be opened: this program does not see the GPU of its memory; CUDA_VISIBLE_DEVICES hides "
        "it");
    return CUDA_ERROR_INVALID_VALUE;
  }
  Import import{.key = key, .block = {}, .device = *device, .importer = importer.device};
  import.chunk_bytes = terms.chunk_bytes;
  import.chunks = terms.chunks;
  import.uses = 1;
  const std::uint64_t bytes = terms.chunks * terms.chunk_bytes;
  result = RealDriver().AddressReserve(&import.reserved, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  import.block = {
      .begin = import.reserved + terms.offset, .bytes = terms.bytes, .context = AllocatingContext(), .id = next_id++};
  result = MapAll(import, importer.gpu, terms, fds);
  if (result == CUDA_SUCCESS) result = SetAccess(import);
  if (result != CUDA_SUCCESS) {
    Unmap(import);
    return result;
  }
  *made = import;
  return CUDA_SUCCESS;
}

// Takes those out of the table that `is` says.
template <typename Is>
std::vector<Import> TakeOut(Is is) {
  std::vector<Import> taken;
  const MutexLock lock(imports_mutex);
  for (auto at = Imports().begin(); at != Imports().end();) {
    if (!is(at->second)) {
      ++at;
      continue;
    }
    taken.push_back(at->second);
    at = Imports().erase(at);
  }
  import_count = Imports().size();
  return taken;
}

const Import* Around(CUdeviceptr address) TESSERA_REQUIRES(imports_mutex) {
  auto at = Imports().upper_bound(address);
  if (at == Imports().begin()) return nullptr;
  const Import& import = (--at)->second;
  return import.uses > 0 && address - import.block.begin < import.block.bytes ? &import : nullptr;
}

void UnmapUnused() {
  if (import_count == 0 || AnyCapture()) return;
  for (const Import& import : TakeOut([](const Import& each) { return each.uses == 0; })) {
    Settle(import.block.context);
    Unmap(import);
  }
}

CUresult ImportNow(const Importer& importer, const wire::ExportKey& key, CUdeviceptr* address) {
  UnmapUnused();
  const CUcontext context = AllocatingContext();
  const MutexLock one(opening);
  {
    const MutexLock lock(imports_mutex);
    for (auto& [begin, import] : Imports()) {
      if (import.key != key || import.block.context != context) continue;
      ++import.uses;
      *address = import.block.begin;
      return CUDA_SUCCESS;
    }
  }
  Import import;
  if (const CUresult result = Map(importer, key, &import); result != CUDA_SUCCESS) return result;
  const MutexLock lock(imports_mutex);
  Imports().emplace(import.reserved, import);
  import_count = Imports().size();
  *address = import.block.begin;
  return CUDA_SUCCESS;
}

// Whether the daemon may know more soon: it is gone, or has come so lately that programs still tell it what they share.
bool MayBeKnownSoon(CUresult result, Nanos now) {
  if (result != CUDA_ERROR_MAP_FAILED && result != CUDA_ERROR_INVALID_VALUE) return false;
  if (Session::Instance().LostSince() != 0) return true;
  const Nanos back = DaemonWatch::Instance().BackSince();
  return back != 0 && now - back < kTellingTakes;
}

}  // namespace

CUresult ImportMemory(const Importer& importer, const wire::ExportKey& key, CUdeviceptr* address, Nanos patience) {
  const Nanos end = MonotonicNow() + patience;
  for (;;) {
    const CUresult result = ImportNow(importer, key, address);
    const Nanos now = MonotonicNow();
    if (now < end && MayBeKnownSoon(result, now)) {
      usleep(kLookAgainUs);
      continue;
    }
    if (result == CUDA_ERROR_MAP_FAILED && Session::Instance().LostSince() != 0)
      Say("an IPC handle cannot be opened: its memory is with the daemon, which is gone; start tesserad");
    return result;
  }
}

bool CloseImport(CUdeviceptr address) {
  if (import_count == 0) return false;
  {
    const MutexLock lock(imports_mutex);
    const auto at = std::find_if(Imports().begin(), Imports().end(), [&](const auto& entry) {
      return entry.second.block.begin == address && entry.second.uses > 0;
    });
    if (at == Imports().end()) return false;
    --at->second.uses;
  }
  UnmapUnused();
  return true;
}

std::uint64_t NextImportId() { return next_id; }

void CloseImportsOf(CUcontext context, std::uint64_t below) {
  if (import_count == 0) return;
  const auto is = [=](const Import& each) { return each.block.context == context && each.block.id < below; };
  for (const Import& import : TakeOut(is)) Unmap(import);
}

std::optional<pager::Block> ImportAt(CUdeviceptr address, CUdevice* device) {
  if (import_count == 0) return std::nullopt;
  const MutexLock lock(imports_mutex);
  const Import* import = Around(address);
  if (!import) return std::nullopt;
  *device = import->device;
  return import->block;
}

bool ImportReaches(CUdeviceptr address, CUdevice device) {
  const MutexLock lock(imports_mutex);
  const Import* import = Around(address);
  return import && (device == import->importer || (import->open_to_own && device == import->device));
}

void AbandonImportsAfterFork() {
  const MutexLock lock(imports_mutex);
  new (&Imports()) std::map<CUdeviceptr, Import>;  // another thread may have been changing the old one
  import_count = 0;
}

}  // namespace tessera::shim
