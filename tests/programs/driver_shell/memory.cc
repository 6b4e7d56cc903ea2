// Every way to allocate, and what the program sees of its memory.
#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

// What was allocated; which fields count depends on how.
struct Piece {
  const struct Kind* kind = nullptr;
  std::size_t bytes = 0;
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  CUmemGenericAllocationHandle handle = 0;
};

struct Kind {
  CUresult (*make)(Piece& piece);
  CUresult (*free)(const Piece& piece);
};

CUresult Free(const Piece& piece) { return Call("cuMemFree_v2", piece.address); }

// Freed memory belongs to its pool until the stream gets there and somebody synchronises.
CUresult FreeAsync(const Piece& piece) {
  const CUresult result = Call("cuMemFreeAsync", piece.address, CUstream{});
  return result == CUDA_SUCCESS ? Call("cuStreamSynchronize", CUstream{}) : result;
}

CUresult DestroyArray(const Piece& piece) { return Call("cuArrayDestroy", piece.array); }

CUdevice CurrentDevice() {
  CUdevice device = 0;
  Call("cuCtxGetDevice", &device);
  return device;
}

CUresult MakeFromPool(Piece& piece) {
  CUmemoryPool pool = nullptr;
  const CUresult result = Call("cuDeviceGetDefaultMemPool", &pool, CurrentDevice());
  if (result != CUDA_SUCCESS) return result;
  return Call("cuMemAllocFromPoolAsync", &piece.address, piece.bytes, pool, CUstream{});
}

// Rows of 512 bytes need no padding, so all that is asked for counts and nothing else.
constexpr std::size_t kRowBytes = 512;

CUresult MakePitched(Piece& piece) {
  std::size_t pitch = 0;
  return Call("cuMemAllocPitch_v2", &piece.address, &pitch, kRowBytes, piece.bytes / kRowBytes, 4u);
}

CUresult MakeArray(Piece& piece) {
  const CUDA_ARRAY_DESCRIPTOR shape = {kRowBytes / 4, piece.bytes / kRowBytes, CU_AD_FORMAT_FLOAT, 1};
  return Call("cuArrayCreate_v2", &piece.array, &shape);
}

CUresult MakeArray3D(Piece& piece) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = {kRowBytes / 4, piece.bytes / kRowBytes / 4, 4, CU_AD_FORMAT_FLOAT, 1, 0};
  return Call("cuArray3DCreate_v2", &piece.array, &shape);
}

CUresult CreatePhysical(Piece& piece) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, CurrentDevice()};
  return Call("cuMemCreate", &piece.handle, piece.bytes, const_cast<const CUmemAllocationProp*>(&prop), 0ull);
}

CUresult ReleasePhysical(const Piece& piece) { return Call("cuMemRelease", piece.handle); }

CUresult Map(Piece& piece) {
  CUresult result = Call("cuMemAddressReserve", &piece.address, piece.bytes, std::size_t{0}, CUdeviceptr{0}, 0ull);
  if (result != CUDA_SUCCESS) return result;
  result = Call("cuMemMap", piece.address, piece.bytes, std::size_t{0}, piece.handle, 0ull);
  if (result != CUDA_SUCCESS) return result;
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, CurrentDevice()}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return Call("cuMemSetAccess", piece.address, piece.bytes, &access, std::size_t{1});
}

CUresult Unmap(const Piece& piece) {
  const CUresult result = Call("cuMemUnmap", piece.address, piece.bytes);
  return result == CUDA_SUCCESS ? Call("cuMemAddressFree", piece.address, piece.bytes) : result;
}

// As PyTorch's expandable segments do it: the handle goes, the mapping keeps the memory.
CUresult MakeMapped(Piece& piece) {
  CUresult result = CreatePhysical(piece);
  if (result != CUDA_SUCCESS) return result;
  result = Map(piece);
  ReleasePhysical(piece);
  return result;
}

const std::map<std::string, Kind> kKinds = {
    {"alloc", {[](Piece& p) { return Call("cuMemAlloc_v2", &p.address, p.bytes); }, Free}},
    {"managed",
     {[](Piece& p) { return Call("cuMemAllocManaged", &p.address, p.bytes, unsigned{CU_MEM_ATTACH_GLOBAL}); }, Free}},
    {"pitch", {MakePitched, Free}},
    {"async", {[](Piece& p) { return Call("cuMemAllocAsync", &p.address, p.bytes, CUstream{}); }, FreeAsync}},
    {"pool", {MakeFromPool, FreeAsync}},
    {"array", {MakeArray, DestroyArray}},
    {"array3d", {MakeArray3D, DestroyArray}},
    {"physical", {CreatePhysical, ReleasePhysical}},
    {"mapped", {MakeMapped, Unmap}},
};

std::map<int, Piece> pieces;
int next_id = 0;

CUresult Allocate(const std::string& kind, std::size_t bytes) {
  Piece piece{.kind = &kKinds.at(kind), .bytes = bytes};
  const CUresult result = piece.kind->make(piece);
  if (result == CUDA_SUCCESS) pieces[next_id++] = piece;
  return result;
}

Reply AllocateOne(const Words& words) {
  const CUresult result = Allocate(words.at(0), NumberAt(words, 1));
  return result == CUDA_SUCCESS ? Reply(result).Add("id", next_id - 1) : result;
}

// Pieces of one size until one is refused.
Reply Fill(const Words& words) {
  CUresult result;
  int count = -1;
  do {
    result = Allocate(words.at(0), NumberAt(words, 1));
    ++count;
  } while (result == CUDA_SUCCESS);
  return Reply(result).Add("pieces", count);
}

Reply FreeAll(const Words&) {
  CUresult worst = CUDA_SUCCESS;
  for (const auto& [id, piece] : pieces) {
    if (const CUresult result = piece.kind->free(piece); result != CUDA_SUCCESS) worst = result;
  }
  pieces.clear();
  return worst;
}

Reply FreeOne(const Words& words) {
  const auto piece = pieces.find(static_cast<int>(NumberAt(words, 0)));
  const CUresult result = piece->second.kind->free(piece->second);
  if (result == CUDA_SUCCESS) pieces.erase(piece);
  return result;
}

Reply Info(const Words&) {
  std::size_t free = 0, total = 0, device_total = 0;
  const CUresult result = Call("cuMemGetInfo_v2", &free, &total);
  Call("cuDeviceTotalMem_v2", &device_total, CurrentDevice());
  return Reply(result)
      .Add("free", static_cast<long long>(free))
      .Add("total", static_cast<long long>(total))
      .Add("device_total", static_cast<long long>(device_total));
}

}  // namespace

void AddMemoryCommands(Commands& commands) {
  const auto piece = [](const Words& words) -> Piece& { return pieces.at(static_cast<int>(NumberAt(words, 0))); };
  commands["allocate"] = AllocateOne;
  commands["fill"] = Fill;
  commands["free"] = FreeOne;
  commands["free_all"] = FreeAll;
  commands["free_address"] = [](const Words& words) -> Reply {
    return Call("cuMemFree_v2", CUdeviceptr{NumberAt(words, 0)});
  };
  commands["map"] = [piece](const Words& words) -> Reply { return Map(piece(words)); };
  commands["unmap"] = [piece](const Words& words) -> Reply { return Unmap(piece(words)); };
  commands["release"] = [piece](const Words& words) -> Reply { return ReleasePhysical(piece(words)); };
  commands["retain"] = [piece](const Words& words) -> Reply {
    CUmemGenericAllocationHandle handle = 0;
    return Call("cuMemRetainAllocationHandle", &handle, reinterpret_cast<void*>(piece(words).address));
  };
  commands["info"] = Info;
}

}  // namespace tessera::shell
