// Memory by handle, mapped at addresses that the program reserves: PyTorch's expandable segments, vLLM's sleep mode.
#include <algorithm>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

struct Physical {
  CUmemGenericAllocationHandle handle = 0;
  std::size_t bytes = 0;
};

std::map<int, CUdeviceptr> segments;
std::map<int, Physical> handles;
int next = 0;

CUdevice CurrentDevice() {
  CUdevice device = 0;
  Call("cuCtxGetDevice", &device);
  return device;
}

CUdeviceptr AddressAt(const Words& words, std::size_t index) {
  return segments.at(static_cast<int>(NumberAt(words, index))) + NumberAt(words, index + 1);
}

// segment BYTES: reserves addresses.
Reply Reserve(const Words& words) {
  CUdeviceptr address = 0;
  const CUresult result =
      Call("cuMemAddressReserve", &address, std::size_t{NumberAt(words, 0)}, std::size_t{0}, CUdeviceptr{0}, 0ull);
  if (result != CUDA_SUCCESS) return result;
  segments[next] = address;
  return Reply(result).Add("id", next++);
}

// segment_free ID BYTES
Reply FreeAddresses(const Words& words) {
  return Call("cuMemAddressFree", segments.at(static_cast<int>(NumberAt(words, 0))), std::size_t{NumberAt(words, 1)});
}

// segment_create BYTES [shared]
Reply Create(const Words& words) {
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = words.size() > 1 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, CurrentDevice()};
  Physical made{.bytes = NumberAt(words, 0)};
  const CUresult result =
      Call("cuMemCreate", &made.handle, made.bytes, const_cast<const CUmemAllocationProp*>(&prop), 0ull);
  if (result != CUDA_SUCCESS) return result;
  handles[next] = made;
  return Reply(result).Add("id", next++);
}

// segment_release HANDLE
Reply Release(const Words& words) {
  return Call("cuMemRelease", handles.at(static_cast<int>(NumberAt(words, 0))).handle);
}

// segment_map HANDLE SEGMENT OFFSET: with access.
Reply Map(const Words& words) {
  const Physical& memory = handles.at(static_cast<int>(NumberAt(words, 0)));
  const CUdeviceptr address = AddressAt(words, 1);
  const CUresult result = Call("cuMemMap", address, memory.bytes, std::size_t{0}, memory.handle, 0ull);
  if (result != CUDA_SUCCESS) return result;
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, CurrentDevice()}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return Call("cuMemSetAccess", address, memory.bytes, &access, std::size_t{1});
}

// segment_unmap SEGMENT OFFSET BYTES
Reply Unmap(const Words& words) { return Call("cuMemUnmap", AddressAt(words, 0), std::size_t{NumberAt(words, 2)}); }

// segment_fill SEGMENT OFFSET BYTES WORD
Reply Fill(const Words& words) {
  return Call("cuMemsetD32_v2", AddressAt(words, 0), static_cast<unsigned>(NumberAt(words, 3)),
              std::size_t{NumberAt(words, 2)} / 4);
}

// segment_check SEGMENT OFFSET BYTES WORD: how many of the words, one in each 64 KiB, are something else.
Reply Check(const Words& words) {
  constexpr std::size_t kPage = 64 << 10;
  const auto word = static_cast<std::uint32_t>(NumberAt(words, 3));
  std::vector<std::uint32_t> found(NumberAt(words, 2) / kPage);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = AddressAt(words, 0);
  copy.srcPitch = kPage;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = found.data();
  copy.dstPitch = copy.WidthInBytes = sizeof word;
  copy.Height = found.size();
  const CUresult result = Call("cuMemcpy2DUnaligned_v2", const_cast<const CUDA_MEMCPY2D*>(&copy));
  return Reply(result).Add("wrong", std::ranges::count_if(found, [=](auto each) { return each != word; }));
}

// segment_export HANDLE: the descriptor stays open.
Reply Export(const Words& words) {
  int fd = -1;
  return Call("cuMemExportToShareableHandle", static_cast<void*>(&fd),
              handles.at(static_cast<int>(NumberAt(words, 0))).handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull);
}

// segment_mapping SEGMENT OFFSET: what the driver says of what is mapped there. Offsets are of the segment.
Reply Mapping(const Words& words) {
  const CUdeviceptr address = AddressAt(words, 0), segment = segments.at(static_cast<int>(NumberAt(words, 0)));
  CUdeviceptr base = 0, start = 0;
  std::size_t bytes = 0, range = 0;
  CUcontext context = nullptr;
  unsigned type = 0, types = 0;
  unsigned long long flags = 0, handle_types = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, CurrentDevice()};
  const CUresult result = Call("cuMemGetAddressRange_v2", &base, &bytes, address);
  if (result != CUDA_SUCCESS) return result;
  const auto ask = [&](void* data, CUpointer_attribute attribute) {
    types += Call("cuPointerGetAttribute", data, attribute, address) != CUDA_SUCCESS;
  };
  ask(&context, CU_POINTER_ATTRIBUTE_CONTEXT);
  ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  ask(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  ask(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  ask(&handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
  types += Call("cuMemGetAccess", &flags, &location, address) != CUDA_SUCCESS;
  types += Call("cuMemRetainAllocationHandle", &handle, reinterpret_cast<void*>(address)) != CUDA_SUCCESS;
  types += Call("cuMemRelease", handle) != CUDA_SUCCESS;
  const auto known = std::ranges::find_if(handles, [&](const auto& each) { return each.second.handle == handle; });
  return Reply(result)
      .Add("failed", types)
      .Add("base", static_cast<long long>(base - segment))
      .Add("bytes", static_cast<long long>(bytes))
      .Add("start", static_cast<long long>(start - segment))
      .Add("range", static_cast<long long>(range))
      .Add("context", context != nullptr)
      .Add("type", type)
      .Add("handle_types", static_cast<long long>(handle_types))
      .Add("flags", static_cast<long long>(flags))
      .Add("handle", known == handles.end() ? -1 : known->first);
}

// segment_misuse SEGMENT OFFSET: calls that the driver refuses of such memory: free, IPC handle, SYNC_MEMOPS.
Reply Misuse(const Words& words) {
  const CUdeviceptr address = AddressAt(words, 0);
  CUipcMemHandle handle;
  const unsigned on = 1;
  return Reply(CUDA_SUCCESS)
      .Add("free", Call("cuMemFree_v2", address))
      .Add("free_async", Call("cuMemFreeAsync", address, CUstream{}))
      .Add("ipc", Call("cuIpcGetMemHandle", &handle, address))
      .Add("sync_memops",
           Call("cuPointerSetAttribute", static_cast<const void*>(&on), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
}

}  // namespace

void AddSegmentCommands(Commands& commands) {
  commands["segment"] = Reserve;
  commands["segment_free"] = FreeAddresses;
  commands["segment_create"] = Create;
  commands["segment_release"] = Release;
  commands["segment_map"] = Map;
  commands["segment_unmap"] = Unmap;
  commands["segment_fill"] = Fill;
  commands["segment_check"] = Check;
  commands["segment_export"] = Export;
  commands["segment_mapping"] = Mapping;
  commands["segment_misuse"] = Misuse;
}

}  // namespace tessera::shell
