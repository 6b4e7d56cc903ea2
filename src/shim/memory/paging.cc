#include "shim/memory/paging.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/seqpacket.h"
#include "shim/gate/capture.h"
#include "shim/load/green_contexts.h"
#include "shim/load/hook.h"
#include "shim/memory/exports.h"
#include "shim/memory/ledger.h"
#include "shim/memory/sync_memops.h"
#include "shim/order/stream_pools.h"
#include "shim/process/say.h"
#include "shim/process/thread.h"
#include "shim/session/session.h"
#include "wire/line.h"

TESSERA_HOOK cuCtxSynchronize();

namespace tessera::shim {

using namespace cuda;

namespace {

// Free GPU memory is kept this long: a program that frees often allocates again, and memory that it has already costs
// no call to the driver.
constexpr Nanos kKeepEmpty = 100 * kMillisecond;
// Address space, as a multiple of the GPU's memory: frees leave gaps, and programs reserve much (PyTorch's expandable
// segments more than the GPU's memory for each stream). Less where the driver does not give so much.
constexpr std::uint64_t kSpans = 32, kFewSpans = 8;
// A program that ends waits no longer than this for its pager, which may wait for a daemon or a mover that hangs.
constexpr Nanos kLongestStop = 5 * kSecond;

std::atomic<int> made{0};
constexpr CUdevice kMostDevices = 64;  // as many as Attachment has
// By the device of a heap, a bit for each other device that reaches it.
std::atomic<std::uint64_t> peers[kMostDevices];

template <typename Function>
void Fill(Function& function, unsigned symbol) {
  function = reinterpret_cast<Function>(tessera_real_table[symbol]);
}

bool Has(CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return REAL_AS(cuDeviceGetAttribute, int*, CUdevice_attribute, CUdevice)(&value, attribute, device) == CUDA_SUCCESS &&
         value != 0;
}

// The device's own pool, which needs no context. A driver without pools has none.
void AddDefaultPool(StreamMemory& memory, CUdevice device) {
  CUmemoryPool pool = nullptr;
  if (REAL_AS(cuDeviceGetDefaultMemPool, CUmemoryPool*, CUdevice)(&pool, device) == CUDA_SUCCESS)
    AddPool(memory, pool, 0);
}

}  // namespace

std::atomic<Paging*> Paging::all_{nullptr};

const pager::Driver& RealDriver() {
  static const pager::Driver* driver = [] {
    auto* made = new pager::Driver;
    Fill(made->AddressReserve, k_cuMemAddressReserve);
    Fill(made->AddressFree, k_cuMemAddressFree);
    Fill(made->Create, k_cuMemCreate);
    Fill(made->Release, k_cuMemRelease);
    Fill(made->Map, k_cuMemMap);
    Fill(made->Unmap, k_cuMemUnmap);
    Fill(made->SetAccess, k_cuMemSetAccess);
    Fill(made->Export, k_cuMemExportToShareableHandle);
    Fill(made->Import, k_cuMemImportFromShareableHandle);
    return made;
  }();
  return *driver;
}

bool SeveralPagings() { return made.load(std::memory_order_relaxed) > 1; }

bool MayReach(const Paging& paging, CUdevice device) {
  if (Reaches(paging, device)) return true;
  int can = 0;
  return device >= 0 && device < kMostDevices &&
         REAL_AS(cuDeviceCanAccessPeer, int*, CUdevice, CUdevice)(&can, device, paging.Device()) == CUDA_SUCCESS &&
         can != 0;
}

CUresult AddPeer(Paging& paging, CUdevice device) {
  if (!MayReach(paging, device)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = paging.Heap().AddPeer(device);
  if (result == CUDA_SUCCESS) peers[paging.Device()] |= std::uint64_t{1} << device;
  return result;
}

bool Reaches(const Paging& paging, CUdevice device) {
  if (device < 0 || device >= kMostDevices) return false;
  return device == paging.Device() || (peers[paging.Device()] >> device & 1) != 0;
}

void Settle(CUcontext context) {
  if (CurrentContext() == context) {
    cuCtxSynchronize();  // the hook: the end of the work is seen at once
    return;
  }
  // Not the hook: the thread's gate is that of another context.
  if (REAL_AS(cuCtxPushCurrent_v2, CUcontext)(context) != CUDA_SUCCESS) return;
  CUcontext before = nullptr;
  REAL(cuCtxSynchronize)();
  REAL_AS(cuCtxPopCurrent_v2, CUcontext*)(&before);
}

Paging* Paging::Make(MemoryAccount& memory, RoomAccount& room, CUdevice device, std::uint64_t gpu_bytes,
                     UniqueFd line) {
  if (!Has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
      !Has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    Say("GPU memory of this program cannot be swapped: the driver has no virtual memory management for it");
    return nullptr;
  }
  auto* paging = new Paging(memory, room, device);
  const bool rdma = Has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  for (const std::uint64_t spans : {kSpans, kFewSpans}) {
    if (!paging->heap_) paging->heap_ = pager::Heap::Make(RealDriver(), device, spans * gpu_bytes, rdma, room);
  }
  paging->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!paging->heap_ || !paging->wake_) {
    Say("GPU memory of this program cannot be swapped: no address space or no file descriptor is left");
    delete paging;
    return nullptr;
  }
  paging->agent_.reset(new pager::LineAgent(*paging->heap_));
  paging->line_ = std::move(line);
  const int failed = StartThread("tessera-pager", ThreadMain, paging);
  if (failed) {
    Say("GPU memory of this program cannot be swapped: cannot start a thread (error %d)", failed);
    delete paging;
    return nullptr;
  }
  room.SetHeap(paging->heap_.get());
  AddDefaultPool(paging->ordered_, device);
  paging->next_ = all_;
  while (!all_.compare_exchange_weak(paging->next_, paging)) continue;
  ++made;
  return paging;
}

Paging* Paging::Of(CUdeviceptr address) {
  for (Paging* at = all_; at; at = at->next_)
    if (at->heap_->Owns(address)) return at;
  return nullptr;
}

// ---- allocations ----

CUresult Paging::Allocate(std::uint64_t bytes, CUdeviceptr* address) {
  if (!address || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUcontext context = AllocatingContext();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  FreeUnsettled(false);
  return AllocateFor(context, bytes, address);
}

CUresult Paging::AllocateFor(CUcontext context, std::uint64_t bytes, CUdeviceptr* address) {
  const auto allocate = [&](bool waits) {
    const std::uint64_t charge = ChargeOf(bytes);
    if (!memory_.Take(charge)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = heap_->Allocate(bytes, context, address, waits);
    if (result != CUDA_SUCCESS) memory_.Give(charge);
    return result;
  };
  CUresult result = allocate(/*waits=*/false);  // its own memory is nearer than what is on its way from others
  if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_NOT_READY) return result;
  if (ReleaseAll() || result == CUDA_ERROR_NOT_READY) result = allocate(/*waits=*/true);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) memory_.NoteRefused();
  return result;
}

bool Paging::ReleaseAll() {
  const bool pending = pending_.Any() || GraphBlocks::AnyDropped();
  if (pending) FreeUnsettled(true);
  return ordered_.ReleaseKept() || pending;
}

bool Paging::Freeable(CUdeviceptr address, pager::Block* block) const {
  const auto found = heap_->Find(address);
  if (found) *block = *found;
  return found && found->begin == address && !found->reserved && !(found->owner && OwnerOf(*found)->Keeps(*found));
}

// What lies beside small blocks in their units, and in chunks that stay where they are, is of no use to a large block.
// Nor are other holes where they cannot be moved away.
std::uint64_t Paging::Lost() const {
  const pager::HeapFigures figures = heap_->Figures();
  return figures.live - figures.used + figures.stuck + (room_.Squeezes() ? 0 : figures.holes);
}

// Work on the memory must have ended before it is given out again, as with the driver's own. While a stream captures,
// waiting is forbidden: then the memory is kept until waiting is allowed.
CUresult Paging::Free(CUdeviceptr address) {
  pager::Block block;
  if (!Freeable(address, &block)) return CUDA_ERROR_INVALID_VALUE;
  const CUcontext context = block.context ? block.context : AllocatingContext();
  const bool later = AnyCapture();
  if (block.owner == &ordered_.Graphs().Pool() && context && !later) Settle(context);
  if (const auto freed = ordered_.Graphs().Free(block, later ? context : nullptr)) return *freed;
  if (later ? !pending_.Add({block, context}) : pending_.Has(block)) return CUDA_ERROR_INVALID_VALUE;
  if (block.owner) OwnerOf(block)->Unuse(block);
  if (later) return CUDA_SUCCESS;
  FreeUnsettled(false);
  if (context) Settle(context);
  FreeNow(block);
  return CUDA_SUCCESS;
}

void Paging::FreeUnsettled(bool all) {
  ordered_.FreeReached();
  for (const UnsettledFree& each : pending_.TakeUnsettled(all)) {
    if (each.context) Settle(each.context);
    FreeNow(each.block);
  }
}

// If its context has ended the block is gone, and another may lie there by now.
void Paging::FreeNow(const pager::Block& block) {
  const auto at = heap_->Find(block.begin);
  if (!at || at->id != block.id) return;
  if (at->owner && OwnerOf(*at)->Keep(*at)) return;
  GiveBack(*at);
}

void Paging::GiveBack(const pager::Block& block) {
  if (block.exported) Unexport(block);
  ForgetSyncMemops(block);
  if (heap_->Free(block.begin, block.id)) {
    memory_.Give(ChargeOf(block.bytes));
    if (block.owner) OwnerOf(block)->Return(block);
  }
  Wake();
}

void Paging::FreeAllOf(CUcontext context, std::uint64_t below) {
  ordered_.EndContext(context);
  ForgetSyncMemopsOf(context);
  UnexportAllOf(context, below);
  if (!context)
    for (StreamPool* pool : PoolsOf(ordered_)) pool->Forget();
  // The heap sums the charges up as it frees: afterwards the blocks' sizes are not known.
  memory_.Give(heap_->FreeAllOf(context, ChargeOf, below));
  Wake();
}

// ---- the thread ----

void Paging::Wake() {
  if (sleeps_.exchange(false)) eventfd_write(wake_.Get(), 1);
}

void* Paging::ThreadMain(void* self) {
  static_cast<Paging*>(self)->Serve();
  return nullptr;
}

void Paging::Serve() {
  Nanos next_ask = 0;
  for (bool busy = false; !stopped_;) {
    if (!line_ && MonotonicNow() >= next_ask) {
      AskForLine();
      next_ask = MonotonicNow() + kSecond;
    }
    RetreatIfAsked();
    FollowNext();
    sleeps_ = true;  // a thread that frees from here on wakes this one, which may not see below what it freed
    std::vector<pager::LineAgent::Answer> dropped;
    agent_->TakeDropped(&dropped);
    Send(dropped);
    // While the mover asks, free memory can wait.
    Nanos due = kNever;
    if (const OwnCall call(room_.Page()); call && !busy) {
      const Nanos now = MonotonicNow();
      if (const Nanos oldest = heap_->Trim(now - kKeepEmpty); oldest != kNever)
        due = std::min(due, oldest + kKeepEmpty);
    }
    pollfd waits[2] = {{.fd = wake_.Get(), .events = POLLIN, .revents = 0},
                       {.fd = line_.Get(), .events = POLLIN, .revents = 0}};
    if (!line_) due = std::min(due, next_ask);
    int timeout = busy ? 1 : -1;
    if (due != kNever) timeout = static_cast<int>(std::max<Nanos>(0, due - MonotonicNow()) / kMillisecond) + 1;
    if (timeout >= 0) sleeps_ = false;
    const int ready = poll(waits, 2, timeout);
    sleeps_ = false;
    if (ready < 0 && errno != EINTR) break;
    eventfd_t count;
    if (waits[0].revents) eventfd_read(wake_.Get(), &count);
    busy = waits[1].revents != 0;
    if (busy && !Answer()) LoseLine();
  }
  // The mover must not wait for answers that will not come, nor the program for memory.
  LoseLine();
  const MutexLock lock(mutex_);
  next_line_.Reset();
  serves_ = false;
  retreated_.NotifyAll();
}

void Paging::FollowNext() {
  const MutexLock lock(mutex_);
  if (!next_line_) return;
  line_ = std::move(next_line_);
  agent_->Lost();
  std::vector<pager::LineAgent::Answer> answers;
  agent_->Adopt(&answers);
  Send(answers);
}

bool Paging::Answer() {
  const OwnCall call(room_.Page());  // of a program that is away, the mover asks nothing that takes the driver
  alignas(8) std::byte packet[sizeof(wire::LineMessage)];
  UniqueFd fds[wire::kMostChunks];
  std::size_t received = 0;
  const ssize_t length = ReceivePacket(line_.Get(), packet, fds, received);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (length <= 0) return false;
  const auto message = wire::ReadLine({packet, static_cast<std::size_t>(length)});
  std::vector<pager::LineAgent::Answer> answers;
  // Room is short: keep none for later.
  const bool gives = message && (message->type == wire::LineType::kEvict || message->type == wire::LineType::kSqueeze);
  if (gives) heap_->Trim(kNever);
  return message && agent_->On(*message, std::span(fds, received), &answers) && Send(answers);
}

bool Paging::Send(std::vector<pager::LineAgent::Answer>& answers) {
  for (auto& answer : answers) {
    int fds[kMostDescriptors];
    std::transform(answer.fds.begin(), answer.fds.end(), fds, [](const UniqueFd& fd) { return fd.Get(); });
    if (!SendPacket(line_.Get(), wire::BytesOf(answer.message), std::span<const int>(fds, answer.fds.size())))
      return false;
  }
  return true;
}

// The daemon may have lost its mover only. A new daemon sends a line without being asked.
void Paging::AskForLine() {
  if (!room_.Swaps()) return;
  UniqueFd line;
  wire::LineOpened answer;
  wire::Header header;
  const bool asked = Session::Instance().Ask(wire::Make(wire::Line{}, room_.Page().Gpu()), answer, header, {&line, 1});
  if (asked && line) Follow(std::move(line));
}

// The mover, or the daemon, is gone. The host memory of the program's chunks stays its own. Every address becomes valid
// before the program is thawed, except in chunks that are in the mover's file or that cannot be mapped.
void Paging::LoseLine() {
  const bool lost = static_cast<bool>(line_);
  line_.Reset();
  agent_->Lost();
  std::vector<pager::LineAgent::Answer> answers;
  const OwnCall call(room_.Page());  // of a program that is away nothing can be made valid now
  if (call) agent_->On({.type = wire::LineType::kSettle}, {}, &answers);
  if (const std::uint64_t unsafe = heap_->Figures().unsafe; call && lost && unsafe > 0 && !stopped_)
    Say("%llu MiB of this program's GPU memory are in the swap file and cannot be used until tesserad's mover is back",
        static_cast<unsigned long long>(unsafe >> 20));
}

void Paging::Retreat() {
  const MutexLock lock(mutex_);  // released while it waits
  retreats_ = true;
  eventfd_write(wake_.Get(), 1);
  while (retreats_ && serves_) retreated_.Wait(mutex_);
}

void Paging::RetreatIfAsked() {
  {
    const MutexLock lock(mutex_);
    if (!retreats_) return;
    next_line_.Reset();
  }
  LoseLine();
  const MutexLock lock(mutex_);
  retreats_ = false;
  retreated_.NotifyAll();
}

void Paging::Follow(UniqueFd line) {
  {
    const MutexLock lock(mutex_);
    next_line_ = std::move(line);
  }
  eventfd_write(wake_.Get(), 1);
}

void Paging::Stop() {
  stopped_ = true;
  eventfd_write(wake_.Get(), 1);
  {
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kLongestStop / kSecond;
    const MutexLock lock(mutex_);  // released while it waits
    while (serves_ && retreated_.WaitUntil(mutex_, until)) continue;
  }
  heap_->Stop();
}

void Paging::AbandonAfterFork() {
  stopped_ = true;
  {
    const MutexLock lock(mutex_);
    serves_ = false;
  }
  line_.Reset();
  heap_->Stop();
}

}  // namespace tessera::shim
