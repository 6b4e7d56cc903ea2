#include "mover/gpu/cuda_gpu.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <fstream>
#include <utility>

namespace tessera::mover {

using namespace cuda;  // NOLINT: the driver's own names

using wire::kChunkBytes;

namespace {

std::string FormatUuid(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

Result<CUdevice> FindDevice(const CudaLibrary& cuda, const std::string& wanted) {
  int count = 0;
  if (cuda.DeviceGetCount(&count) != CUDA_SUCCESS) count = 0;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    CUuuid uuid;
    if (cuda.DeviceGet(&device, i) == CUDA_SUCCESS && cuda.DeviceGetUuid(&uuid, device) == CUDA_SUCCESS &&
        FormatUuid(uuid) == wanted) {
      return device;
    }
  }
  return Fail(ENODEV, "CUDA knows no GPU " + wanted, "nvidia-smi -L and tessera gpus list them");
}

// The NUMA node that is nearest to the GPU; 0 if the system does not say (-1: it has one node).
int NumaNodeOf(const CudaLibrary& cuda, CUdevice device) {
  char id[32] = {};
  if (cuda.DeviceGetPCIBusId(id, sizeof id, device) != CUDA_SUCCESS) return 0;
  std::string name = id;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  int node = 0;
  std::ifstream("/sys/bus/pci/devices/" + name + "/numa_node") >> node;
  return std::max(node, 0);
}

void* AsPointer(int fd) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)); }

}  // namespace

Result<std::uint64_t> AddressRange::Take() {
  constexpr std::uint64_t kAtATime = 32;
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    CUdeviceptr begin = 0;
    const auto reserved = CheckCuda(cuda_.MemAddressReserve(&begin, kAtATime * unit_, 0, 0, 0), "cuMemAddressReserve");
    if (!reserved) return std::unexpected(reserved.error());
    for (std::uint64_t i = kAtATime; i-- > 0;) free_.push_back(begin + i * unit_);
  }
  const std::uint64_t address = free_.back();
  free_.pop_back();
  return address;
}

void AddressRange::GiveBack(std::uint64_t address) {
  const MutexLock lock(mutex_);
  free_.push_back(address);
}

// Each part has the addresses of a chunk, and each unit its place in them. Errors of unmapping and releasing are
// ignored: memory that is known to be mapped can be unmapped.
class CudaGpu::CudaWindow : public Window {
 public:
  explicit CudaWindow(CudaGpu& gpu) : gpu_(gpu) {}
  ~CudaWindow() override {
    for (const auto& [begin, end] : mapped_) (void)gpu_.cuda_.MemUnmap(begin, end - begin);
    for (const auto handle : handles_) (void)gpu_.cuda_.MemRelease(handle);
    if (address_ != 0) gpu_.window_addresses_.GiveBack(address_);
    if (event_ != nullptr) gpu_.events_.push_back(event_);
  }
  std::uint32_t chunks() const override { return static_cast<std::uint32_t>(parts_.size()); }

  // Owns `handle` also if it fails: EINVAL then.
  Result<void> Map(std::uint64_t address, std::uint64_t bytes, CUmemGenericAllocationHandle handle) {
    handles_.push_back(handle);
    const CUresult mapped = gpu_.cuda_.MemMap(address, bytes, 0, handle, 0);
    if (mapped == CUDA_ERROR_OUT_OF_MEMORY) return CheckCuda(mapped, "cuMemMap");
    if (mapped != CUDA_SUCCESS) return Fail(EINVAL, "it is not of the size that it should have");
    if (!mapped_.empty() && mapped_.back().second == address) {
      mapped_.back().second += bytes;
    } else {
      mapped_.emplace_back(address, address + bytes);
    }
    return {};
  }

  CudaGpu& gpu_;
  std::uint64_t address_ = 0;
  CUevent event_ = nullptr;
  std::vector<ChunkPart> parts_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> mapped_;  // runs of neighbours: begin and end
  std::vector<CUmemGenericAllocationHandle> handles_;
};

Result<std::unique_ptr<CudaGpu>> CudaGpu::Open(const CudaLibrary& cuda, const std::string& uuid) {
  // CUDA_VISIBLE_DEVICES may name this GPU alone; if it does not exist, there is no device at all.
  const auto ready = CheckCuda(cuda.Init(0), "cuInit");
  if (!ready && ready.error().code != ENODEV) return std::unexpected(ready.error());
  const auto device = FindDevice(cuda, uuid);
  if (!device) return std::unexpected(device.error());
  std::unique_ptr<CudaGpu> gpu(new CudaGpu(cuda));
  gpu->device_ = *device;
  if (const auto started = gpu->Start(); !started) return std::unexpected(started.error());
  return gpu;
}

Result<void> CudaGpu::Start() {
  on_host_ = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
              .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, NumaNodeOf(cuda_, device_)}};
  auto result = CheckCuda(cuda_.PrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  if (result) result = CheckCuda(cuda_.CtxSetCurrent(context_), "cuCtxSetCurrent");
  for (CUstream& stream : streams_) {
    if (result) result = CheckCuda(cuda_.StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  return result;
}

Result<void> CudaGpu::GiveAccess(std::uint64_t address, std::uint64_t bytes) const {
  const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return CheckCuda(cuda_.MemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
}

Result<UniqueFd> CudaGpu::ExportMemory(CUmemGenericAllocationHandle handle) const {
  int fd = -1;
  const auto exported = CheckCuda(cuda_.MemExport(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                                  "cuMemExportToShareableHandle");
  if (!exported) return std::unexpected(exported.error());
  return UniqueFd(fd);
}

Result<CUmemGenericAllocationHandle> CudaGpu::ImportMemory(const UniqueFd& fd, CUmemLocationType type, bool own) {
  CUmemGenericAllocationHandle handle = 0;
  if (cuda_.MemImport(&handle, AsPointer(fd.Get()), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS)
    return Fail(EINVAL, "it is no memory");
  CUmemAllocationProp properties = {};
  const bool known = cuda_.MemGetProperties(&properties, handle) == CUDA_SUCCESS;
  if (!known || properties.location.type != type || (own && properties.location.id != device_)) {
    (void)cuda_.MemRelease(handle);
    return Fail(EINVAL, own                                      ? "it is no memory of this GPU"
                        : type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? "it is no host memory"
                                                                 : "it is no memory of a GPU");
  }
  return handle;
}

// ---- host memory ----

// Maps what memory.handle names; releases it on failure.
Result<void> CudaGpu::MapHost(HostMemory& memory) {
  const auto address = host_addresses_.Take();
  if (!address) {
    (void)cuda_.MemRelease(memory.handle);
    return std::unexpected(address.error());
  }
  auto result = CheckCuda(cuda_.MemMap(*address, kChunkBytes, 0, memory.handle, 0), "cuMemMap");
  if (result) {
    result = GiveAccess(*address, kChunkBytes);
    if (!result) (void)cuda_.MemUnmap(*address, kChunkBytes);
  }
  if (result) {
    memory.address = *address;
  } else {
    (void)cuda_.MemRelease(memory.handle);
    host_addresses_.GiveBack(*address);
  }
  return result;
}

Result<HostMemory> CudaGpu::MakeHost() {
  HostMemory memory;
  auto result = CheckCuda(cuda_.CtxSetCurrent(context_), "cuCtxSetCurrent");
  CUmemGenericAllocationHandle handle = 0;
  if (result) result = CheckCuda(cuda_.MemCreate(&handle, kChunkBytes, &on_host_, 0), "cuMemCreate");
  if (!result) return std::unexpected(result.error());
  memory.handle = handle;
  if (result = MapHost(memory); !result) return std::unexpected(result.error());
  auto fd = ExportMemory(handle);
  if (!fd) {
    FreeHost(std::move(memory));
    return std::unexpected(fd.error());
  }
  memory.fd = std::move(*fd);
  return memory;
}

void CudaGpu::FreeHost(HostMemory memory) {
  if (memory.address == 0) return;
  (void)cuda_.MemUnmap(memory.address, kChunkBytes);
  (void)cuda_.MemRelease(memory.handle);
  host_addresses_.GiveBack(memory.address);
}

Result<void> CudaGpu::Reach(HostMemory& memory) {
  if (memory.address != 0) return {};
  auto result = CheckCuda(cuda_.CtxSetCurrent(context_), "cuCtxSetCurrent");
  if (!result) return result;
  const auto type = memory.transit ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  const auto handle = ImportMemory(memory.fd, type, /*own=*/false);
  if (!handle) return std::unexpected(handle.error());
  memory.handle = *handle;
  const auto mapped = MapHost(memory);
  if (mapped || mapped.error().code == ENOMEM) return mapped;
  return Fail(EINVAL, "it is not of the size of a chunk");
}

// Maps memory for the processor only when it goes to a file: that costs page tables, and time.
Result<std::span<std::byte>> CudaGpu::BytesOf(HostMemory& memory) {
  if (memory.transit) return Fail(EOPNOTSUPP, "it is memory of a GPU");
  auto result = Reach(memory);
  if (result) result = CheckCuda(cuda_.CtxSetCurrent(context_), "cuCtxSetCurrent");
  const CUmemAccessDesc access = {.location = on_host_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (result) result = CheckCuda(cuda_.MemSetAccess(memory.address, kChunkBytes, &access, 1), "cuMemSetAccess");
  if (!result) return std::unexpected(result.error());
  return std::span(reinterpret_cast<std::byte*>(memory.address), kChunkBytes);
}

// ---- windows ----

Result<std::unique_ptr<CudaGpu::CudaWindow>> CudaGpu::NewWindow() {
  auto window = std::make_unique<CudaWindow>(*this);
  const auto address = window_addresses_.Take();
  if (!address) return std::unexpected(address.error());
  window->address_ = *address;
  if (!events_.empty()) {
    window->event_ = events_.back();
    events_.pop_back();
    return window;
  }
  const auto made = CheckCuda(cuda_.EventCreate(&window->event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  if (!made) return std::unexpected(made.error());
  return window;
}

Result<std::unique_ptr<Window>> CudaGpu::Import(On on, std::span<const UniqueFd> fds,
                                                std::span<const ChunkPart> parts) {
  auto window = NewWindow();
  if (!window) return std::unexpected(window.error());
  std::size_t next = 0;
  const auto map = [&](std::uint64_t address, std::uint64_t bytes) -> Result<void> {
    const auto handle = ImportMemory(fds[next++], CU_MEM_LOCATION_TYPE_DEVICE, /*own=*/on == On::kThis);
    if (!handle) return std::unexpected(handle.error());
    return (*window)->Map(address, bytes, *handle);
  };
  for (const ChunkPart& part : parts) {
    const std::uint64_t chunk = (*window)->address_ + (*window)->parts_.size() * kChunkBytes;
    (*window)->parts_.push_back(part);
    Result<void> mapped;
    if (part.whole()) mapped = map(chunk, kChunkBytes);
    wire::ForEachPiece(part.units, part.begins, [&](std::uint32_t first, std::uint32_t count) {
      if (mapped) mapped = map(chunk + first * wire::kUnitBytes, count * wire::kUnitBytes);
    });
    if (!mapped) return std::unexpected(mapped.error());
  }
  for (const auto& [begin, end] : (*window)->mapped_) {
    if (const auto access = GiveAccess(begin, end - begin); !access) return std::unexpected(access.error());
  }
  return std::move(*window);
}

Result<void> CudaGpu::StartCopy(Direction direction, Window& window, std::span<const HostMemory* const> host) {
  const auto& own = static_cast<const CudaWindow&>(window);
  CUstream stream = streams_[static_cast<int>(direction)];
  Result<void> result;
  for (std::size_t i = 0; i < host.size(); ++i) {
    wire::ForEachRun(own.parts_[i].units, [&](std::uint32_t first, std::uint32_t count) {
      const std::uint64_t offset = first * wire::kUnitBytes;
      CUdeviceptr to = host[i]->address + offset, from = own.address_ + i * kChunkBytes + offset;
      if (direction == Direction::kIn) std::swap(to, from);
      if (result)
        result = CheckCuda(cuda_.MemcpyDtoDAsync(to, from, count * wire::kUnitBytes, stream), "cuMemcpyDtoDAsync");
    });
  }
  if (result) result = CheckCuda(cuda_.EventRecord(own.event_, stream), "cuEventRecord");
  return result;
}

Result<bool> CudaGpu::Copied(const Window& window) {
  const CUresult result = cuda_.EventQuery(static_cast<const CudaWindow&>(window).event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (const auto known = CheckCuda(result, "copy memory"); !known) return std::unexpected(known.error());
  return true;
}

}  // namespace tessera::mover
