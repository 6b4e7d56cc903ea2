#include "shim/memory/exports.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/fork_mutex.h"
#include "base/seqpacket.h"
#include "shim/memory/recall.h"
#include "shim/process/say.h"
#include "shim/session/daemon_watch.h"
#include "shim/session/session.h"

namespace tessera::shim {

using namespace cuda;

namespace {

struct Export {
  wire::ExportKey key;
  pager::Exported memory;
  Paging* paging = nullptr;
  bool told = false;  // the daemon knows it
};

// Taken before the heap's and the session's. No thread waits for memory while it holds this.
ForkMutex exports_mutex;

// By the begin of the block.
std::map<CUdeviceptr, Export>& Exports() TESSERA_REQUIRES(exports_mutex) {
  static auto* exports = new std::map<CUdeviceptr, Export>;
  return *exports;
}

std::uint32_t GpuOf(const Export& each) { return each.paging->Room().Page().Gpu(); }

// Sends all descriptors of the memory. CUDA_SUCCESS also if no daemon is there to take them: the next one is told.
CUresult Tell(Export& each) {
  const pager::Exported& memory = each.memory;
  for (std::uint32_t first = 0; first < memory.chunks; first += wire::kMostExported) {
    int fds[wire::kMostExported];
    const auto part = std::span(fds).first(std::min<std::size_t>(wire::kMostExported, memory.chunks - first));
    const CUresult shared = each.paging->Heap().Pins().Share(memory, first, part);
    if (shared != CUDA_SUCCESS) return shared;
    const wire::Export message{.key = each.key,
                               .bytes = memory.block.bytes,
                               .offset = memory.offset,
                               .chunk_bytes = memory.chunk_bytes,
                               .chunks = memory.chunks,
                               .first = first};
    wire::Exported answer;
    wire::Header header{};
    const bool taken = Session::Instance().Ask(wire::Make(message, GpuOf(each)), answer, header, {}, part);
    for (const int fd : part) close(fd);
    if (!taken) return header.type == wire::Refused::kType ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  }
  each.told = true;
  return CUDA_SUCCESS;
}

void Untell(const Export& each) {
  wire::Exported answer;
  wire::Header header;
  Session::Instance().Ask(wire::Make(wire::Unexport{.key = each.key}, GpuOf(each)), answer, header);
}

// Pins memory by `pin`, and waits until all of it is on the GPU.
template <typename Pin>
CUresult Await(Paging& paging, Pin pin) {
  return AwaitRecall(paging.Room(), pin, "cannot share memory with another program or a device");
}

// A block that another thread has exported meanwhile stays pinned.
void UnpinIfUnknown(Paging& paging, const pager::Block& block) TESSERA_REQUIRES(exports_mutex) {
  const auto at = Exports().find(block.begin);
  if (at == Exports().end() || at->second.memory.block.id != block.id) paging.Heap().Pins().Unpin(block);
}

// A new daemon knows of no export; when all have attached to it, it is told.
class ExportsFollower : public DaemonFollower {
 public:
  void Retreat() override {}
  bool Reattach() override {
    const MutexLock lock(exports_mutex);
    for (auto& [begin, each] : Exports()) each.told = false;
    return true;
  }
  void Reattached() override {
    const MutexLock lock(exports_mutex);
    for (auto& [begin, each] : Exports()) {
      if (!each.told && Tell(each) != CUDA_SUCCESS)
        Say("an IPC handle of this program can no longer be opened: the new daemon did not accept its memory");
    }
  }
  void GoOnAlone(bool) override {}
};

CUresult MakeExport(Paging& paging, const pager::Exported& memory, wire::ExportKey* key)
    TESSERA_REQUIRES(exports_mutex) {
  static const bool follows = [] {
    DaemonWatch::Instance().Add(*new ExportsFollower);
    return true;
  }();
  (void)follows;
  Export made{.key = {}, .memory = memory, .paging = &paging};
  if (getrandom(made.key.bytes, sizeof made.key.bytes, 0) != sizeof made.key.bytes) return CUDA_ERROR_OPERATING_SYSTEM;
  if (const CUresult told = Tell(made); told != CUDA_SUCCESS) {
    Untell(made);  // the parts that went before it failed
    return told;
  }
  *key = made.key;
  Exports().insert_or_assign(memory.block.begin, made);
  // The program may have freed the block meanwhile, before there was an export to take back.
  const auto now = paging.Heap().Find(memory.block.begin);
  if (now && now->id == memory.block.id) return CUDA_SUCCESS;
  Exports().erase(memory.block.begin);
  Untell(made);
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult ExportMemory(Paging& paging, CUdeviceptr address, wire::ExportKey* key) {
  for (;;) {
    pager::Exported memory;
    CUresult result = Await(paging, [&] { return paging.Heap().Pins().Pin(address, &memory); });
    const MutexLock lock(exports_mutex);
    if (result == CUDA_SUCCESS) {
      const auto at = Exports().find(memory.block.begin);
      if (at != Exports().end() && at->second.memory.block.id == memory.block.id) {
        *key = at->second.key;
        return CUDA_SUCCESS;
      }
      // Another thread's export of it may have failed, and let go of it.
      result = paging.Heap().Pins().Pin(address, &memory);
      if (result == CUDA_ERROR_NOT_READY) continue;
      if (result == CUDA_SUCCESS) result = MakeExport(paging, memory, key);
    }
    if (result != CUDA_SUCCESS) UnpinIfUnknown(paging, memory.block);
    return result;
  }
}

CUresult PinForDevice(Paging& paging, CUdeviceptr address, std::uint64_t bytes) {
  const CUresult result = Await(paging, [&] { return paging.Heap().Pins().PinForDevice(address, bytes); });
  if (result == CUDA_SUCCESS) return result;
  const MutexLock lock(exports_mutex);
  for (const pager::Block& block : paging.Heap().Pins().Within(address, bytes)) UnpinIfUnknown(paging, block);
  return result;
}

bool IsExport(const wire::ExportKey& key) {
  const MutexLock lock(exports_mutex);
  return std::any_of(Exports().begin(), Exports().end(), [&](const auto& entry) { return entry.second.key == key; });
}

void Unexport(const pager::Block& block) {
  const MutexLock lock(exports_mutex);
  const auto at = Exports().find(block.begin);
  if (at == Exports().end() || at->second.memory.block.id != block.id) return;
  if (at->second.told) Untell(at->second);
  Exports().erase(at);
}

void UnexportAllOf(CUcontext context, std::uint64_t below) {
  const MutexLock lock(exports_mutex);
  for (auto at = Exports().begin(); at != Exports().end();) {
    const pager::Block& block = at->second.memory.block;
    if (block.context != context || block.id >= below) {
      ++at;
      continue;
    }
    if (at->second.told) Untell(at->second);
    at = Exports().erase(at);
  }
}

void AbandonExportsAfterFork() {
  const MutexLock lock(exports_mutex);
  new (&Exports()) std::map<CUdeviceptr, Export>;  // another thread may have been changing the old one
}

}  // namespace tessera::shim
