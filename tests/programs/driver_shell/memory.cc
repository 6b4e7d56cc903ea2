// Every way to allocate, and what the program sees of its memory.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

// An allocation; which fields count depends on how it was made.
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

// An allocation that a graph makes when it is launched. The graph stays, with the memory.
CUresult MakeInGraph(Piece& piece) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUresult result = Call("cuStreamCreate", &stream, 1u);
  if (result == CUDA_SUCCESS) result = Call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result == CUDA_SUCCESS) result = Call("cuMemAllocAsync", &piece.address, piece.bytes, stream);
  if (result == CUDA_SUCCESS) result = Call("cuStreamEndCapture", stream, &graph);
  if (result == CUDA_SUCCESS) result = Call("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  if (result == CUDA_SUCCESS) result = Call("cuGraphLaunch", executable, stream);
  return result == CUDA_SUCCESS ? Call("cuStreamSynchronize", stream) : result;
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

CUresult Create(Piece& piece, CUmemAllocationHandleType shares) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = shares;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, CurrentDevice()};
  return Call("cuMemCreate", &piece.handle, piece.bytes, const_cast<const CUmemAllocationProp*>(&prop), 0ull);
}

CUresult CreatePhysical(Piece& piece) { return Create(piece, CU_MEM_HANDLE_TYPE_NONE); }

// Another program could import it.
CUresult CreateShared(Piece& piece) {
  int fd = -1;
  const CUresult result = Create(piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return result != CUDA_SUCCESS ? result
                                : Call("cuMemExportToShareableHandle", static_cast<void*>(&fd), piece.handle,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
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

// Another program's memory, by a handle.
CUresult CloseHandle(const Piece& piece) { return Call("cuIpcCloseMemHandle", piece.address); }

const std::map<std::string, Kind> kKinds = {
    {"alloc", {[](Piece& p) { return Call("cuMemAlloc_v2", &p.address, p.bytes); }, Free}},
    {"managed",
     {[](Piece& p) { return Call("cuMemAllocManaged", &p.address, p.bytes, unsigned{CU_MEM_ATTACH_GLOBAL}); }, Free}},
    {"pitch", {MakePitched, Free}},
    {"async", {[](Piece& p) { return Call("cuMemAllocAsync", &p.address, p.bytes, CUstream{}); }, FreeAsync}},
    {"pool", {MakeFromPool, FreeAsync}},
    {"graph", {MakeInGraph, FreeAsync}},
    {"array", {MakeArray, DestroyArray}},
    {"array3d", {MakeArray3D, DestroyArray}},
    {"physical", {CreatePhysical, ReleasePhysical}},
    {"shared", {CreateShared, ReleasePhysical}},
    {"mapped", {MakeMapped, Unmap}},
    {"imported", {nullptr, CloseHandle}},
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

// ---- what is in a piece, and what the driver says of it ----

// The same word in all of a piece.
CUresult SetAll(const Piece& piece, std::uint32_t word) {
  return Call("cuMemsetD32_v2", piece.address, word, piece.bytes / sizeof word);
}

// How many of the words that are looked at, one in each page, are something else.
Reply Compare(const Piece& piece, std::uint32_t word) {
  constexpr std::size_t kPage = 64 << 10;
  std::vector<std::uint32_t> found(piece.bytes / kPage + (piece.bytes % kPage != 0 ? 1 : 0));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = piece.address;
  copy.srcPitch = kPage;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = found.data();
  copy.dstPitch = copy.WidthInBytes = sizeof word;
  copy.Height = found.size();
  const CUresult result = Call("cuMemcpy2DUnaligned_v2", const_cast<const CUDA_MEMCPY2D*>(&copy));
  return Reply(result).Add("wrong", std::count_if(found.begin(), found.end(), [=](auto each) { return each != word; }));
}

// pointer ID OFFSET: offsets and sizes are of the piece.
Reply Pointer(const Piece& piece, std::size_t offset) {
  const CUdeviceptr address = piece.address + offset;
  CUdeviceptr base = 0, start = 0, device_pointer = 0;
  std::size_t bytes = 0, range = 0;
  unsigned type = 0;
  int ordinal = -1;
  unsigned char managed = 1;
  unsigned long long id = 0;
  CUcontext context = nullptr, current = nullptr;
  Call("cuCtxGetCurrent", &current);
  const CUresult result = Call("cuMemGetAddressRange_v2", &base, &bytes, address);
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  void* values[] = {&type, &ordinal, &context, &start};
  const CUresult all = Call("cuPointerGetAttributes", 4u, static_cast<CUpointer_attribute*>(names),
                            static_cast<void**>(values), address);
  const auto one = [&](CUpointer_attribute name, void* value) {
    return Call("cuPointerGetAttribute", value, name, address);
  };
  const CUresult each = std::max(
      {one(CU_POINTER_ATTRIBUTE_RANGE_SIZE, &range), one(CU_POINTER_ATTRIBUTE_BUFFER_ID, &id),
       one(CU_POINTER_ATTRIBUTE_IS_MANAGED, &managed), one(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, &device_pointer)});
  return Reply(result)
      .Add("attributes", all)
      .Add("attribute", each)
      .Add("base", static_cast<long long>(base - piece.address))
      .Add("bytes", static_cast<long long>(bytes))
      .Add("type", type)
      .Add("ordinal", ordinal)
      .Add("own_context", context == current)
      .Add("start", static_cast<long long>(start - piece.address))
      .Add("range", static_cast<long long>(range))
      .Add("managed", managed)
      .Add("pointer", static_cast<long long>(device_pointer - piece.address))
      .Add("id", static_cast<long long>(id));
}

// ---- memory that programs share ----

// ipc_get ID OFFSET: the handle of the piece, by an address in it.
Reply GetHandle(const Piece& piece, std::size_t offset) {
  CUipcMemHandle handle{};
  const CUresult result = Call("cuIpcGetMemHandle", &handle, piece.address + offset);
  if (result != CUDA_SUCCESS) return result;
  std::string text;
  for (const char byte : handle.reserved) {
    text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return Reply(result).Add("handle", text);
}

// ipc_open HANDLE FUNCTION: another program's memory becomes a piece, which is closed by being freed.
Reply OpenHandle(const Words& words) {
  CUipcMemHandle handle{};
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(words.at(0).substr(2 * i, 2), nullptr, 16));
  Piece piece{.kind = &kKinds.at("imported")};
  CUresult result = Call(words.at(1).c_str(), &piece.address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result != CUDA_SUCCESS) return result;
  result = Call("cuMemGetAddressRange_v2", static_cast<CUdeviceptr*>(nullptr), &piece.bytes, piece.address);
  pieces[next_id++] = piece;
  return Reply(result)
      .Add("id", next_id - 1)
      .Add("address", static_cast<long long>(piece.address))
      .Add("bytes", static_cast<long long>(piece.bytes));
}

// A batch of the two halves of a copy, on a stream of its own: no batch may use the default one.
CUresult CopyBatch(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, const std::string& how) {
  CUstream stream = nullptr;
  CUresult result = Call("cuStreamCreate", &stream, 1u);
  if (result != CUDA_SUCCESS) return result;
  const std::size_t half = bytes / 2;
  if (how.find("3D") != std::string::npos) {
    CUDA_MEMCPY3D_BATCH_OP copies[2] = {};
    for (std::size_t i = 0; i < 2; ++i) {
      copies[i].src.type = copies[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
      copies[i].src.op.ptr.ptr = from + i * half;
      copies[i].dst.op.ptr.ptr = to + i * half;
      copies[i].extent = {kRowBytes, half / kRowBytes, 1};
      copies[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    }
    result = Call(how.c_str(), std::size_t{2}, static_cast<CUDA_MEMCPY3D_BATCH_OP*>(copies), 0ull, stream);
  } else {
    CUdeviceptr all_to[] = {to, to + half}, all_from[] = {from, from + half};
    std::size_t sizes[] = {half, half}, start = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    result = Call(how.c_str(), static_cast<CUdeviceptr*>(all_to), static_cast<CUdeviceptr*>(all_from),
                  static_cast<std::size_t*>(sizes), std::size_t{2}, &attributes, &start, std::size_t{1}, stream);
  }
  const CUresult ended = Call("cuStreamSynchronize", stream);
  Call("cuStreamDestroy_v2", stream);
  return result == CUDA_SUCCESS ? ended : result;
}

// copy TO FROM HOW: all of one piece into another, by the named function; the copy's end is waited for.
Reply Copy(const Piece& to, const Piece& from, const std::string& how) {
  const std::size_t bytes = std::min(to.bytes, from.bytes);
  CUresult result;
  if (how.find("Batch") != std::string::npos) {
    result = CopyBatch(to.address, from.address, bytes, how);
  } else if (how.find("2D") != std::string::npos) {
    const CUDA_MEMCPY2D plane = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = from.address,
                                 .srcPitch = kRowBytes,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = to.address,
                                 .dstPitch = kRowBytes,
                                 .WidthInBytes = kRowBytes,
                                 .Height = bytes / kRowBytes};
    result = Call(how.c_str(), &plane);
  } else if (how.find("Async") != std::string::npos) {
    result = Call(how.c_str(), to.address, from.address, bytes, CUstream{});
  } else {
    result = Call(how.c_str(), to.address, from.address, bytes);
  }
  return result == CUDA_SUCCESS ? Call("cuCtxSynchronize") : result;
}

// advice ID: what the calls for managed memory answer about the piece.
Reply Advice(const Piece& piece) {
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, CurrentDevice()};
  CUdeviceptr address = piece.address;
  std::size_t bytes = piece.bytes, start = 0;
  int value = 0;
  const CUdevice device = CurrentDevice();
  const auto batch = [&](const char* name) {
    return Call(name, &address, &bytes, std::size_t{1}, &location, &start, std::size_t{1}, 0ull, CUstream{});
  };
  return Reply(CUDA_SUCCESS)
      .Add("advise", Call("cuMemAdvise", address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, device))
      .Add("advise_v2", Call("cuMemAdvise_v2", address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, location))
      .Add("prefetch", Call("cuMemPrefetchAsync", address, bytes, device, CUstream{}))
      .Add("prefetch_v2", Call("cuMemPrefetchAsync_v2", address, bytes, location, 0u, CUstream{}))
      .Add("prefetch_batch", batch("cuMemPrefetchBatchAsync"))
      .Add("discard_and_prefetch_batch", batch("cuMemDiscardAndPrefetchBatchAsync"))
      .Add("discard_batch", Call("cuMemDiscardBatchAsync", &address, &bytes, std::size_t{1}, 0ull, CUstream{}))
      .Add("range", Call("cuMemRangeGetAttribute", static_cast<void*>(&value), sizeof value,
                         CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, bytes));
}

}  // namespace

void AddMemoryCommands(Commands& commands) {
  const auto piece = [](const Words& words) -> Piece& { return pieces.at(static_cast<int>(NumberAt(words, 0))); };
  commands["allocate"] = AllocateOne;
  commands["fill"] = Fill;
  commands["free"] = FreeOne;
  // As a library does that was there before the last context. On a thread of its own: this one's have ended for the
  // driver by then.
  commands["free_at_exit"] = [](const Words&) -> Reply {
    static CUcontext context = nullptr;
    std::atexit([] {
      std::thread([] {
        Call("cuCtxSetCurrent", context);
        FreeAll({});
      }).join();
    });
    return Call("cuCtxGetCurrent", &context);
  };
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
  commands["set"] = [piece](const Words& words) -> Reply {
    return SetAll(piece(words), static_cast<std::uint32_t>(NumberAt(words, 1)));
  };
  commands["compare"] = [piece](const Words& words) {
    return Compare(piece(words), static_cast<std::uint32_t>(NumberAt(words, 1)));
  };
  commands["copy"] = [piece](const Words& words) {
    return Copy(piece(words), pieces.at(static_cast<int>(NumberAt(words, 1))), words.at(2));
  };
  // Frees a piece in the order of the default stream, whatever allocator it is from.
  commands["free_async"] = [piece](const Words& words) -> Reply {
    const CUresult result = Call("cuMemFreeAsync", piece(words).address, CUstream{});
    if (result == CUDA_SUCCESS) pieces.erase(static_cast<int>(NumberAt(words, 0)));
    return result;
  };
  // sync_memops ID VALUE: sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
  commands["sync_memops"] = [piece](const Words& words) -> Reply {
    const auto value = static_cast<unsigned>(NumberAt(words, 1));
    return Call("cuPointerSetAttribute", static_cast<const void*>(&value), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                piece(words).address);
  };
  commands["advice"] = [piece](const Words& words) { return Advice(piece(words)); };
  commands["address"] = [piece](const Words& words) {
    return Reply(CUDA_SUCCESS).Add("address", static_cast<long long>(piece(words).address));
  };
  commands["pointer"] = [piece](const Words& words) { return Pointer(piece(words), NumberAt(words, 1)); };
  commands["ipc_get"] = [piece](const Words& words) { return GetHandle(piece(words), NumberAt(words, 1)); };
  commands["ipc_open"] = OpenHandle;
  commands["ipc_close"] = [](const Words& words) -> Reply {
    return Call("cuIpcCloseMemHandle", CUdeviceptr{NumberAt(words, 0)});
  };
  commands["free_inside"] = [piece](const Words& words) -> Reply {
    return Call("cuMemFree_v2", piece(words).address + NumberAt(words, 1));
  };
  // Frees a piece while a stream captures.
  commands["free_capturing"] = [piece](const Words& words) -> Reply {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    Call("cuStreamCreate", &stream, 1u);
    CUresult result = Call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result == CUDA_SUCCESS) result = piece(words).kind->free(piece(words));
    const CUresult ended = Call("cuStreamEndCapture", stream, &graph);
    pieces.erase(static_cast<int>(NumberAt(words, 0)));
    return Reply(result).Add("ended", ended);
  };
}

}  // namespace tessera::shell
