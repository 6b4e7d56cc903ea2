// One call of the driver at a time, by its name: the first that a program makes after a pause.
#include <array>
#include <cstdint>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

constexpr std::size_t kBytes = 1 << 20;

constexpr char kNothing[] = R"(
.version 6.4
.target sm_60
.address_size 64
.visible .entry nothing()
{
  ret;
}
)";

// What the calls are about, in the current context.
struct Things {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0, to_free = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};
Things things;

// As the CUDA runtime finds what it calls: by the name without the version, and a version of CUDA.
void* LookedUp(const std::string& name) {
  const int version = name.ends_with("_v2") ? 11000 : 12000;
  void* function = nullptr;
  Call("cuGetProcAddress", name.substr(0, name.rfind("_v2")).c_str(), &function, version, std::uint64_t{0});
  return function;
}

// A call of the function that was found before: to find it may be a call of the driver, too.
using Caller = std::function<CUresult(void* function)>;

template <typename... Arguments>
Caller With(Arguments... arguments) {
  return [=](void* function) { return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...); };
}

// Made when they are needed, of what was prepared.
std::map<std::string, Caller> Callers() {
  static std::array<char, kBytes> host;
  static CUcontext context = nullptr;
  static CUdevice device = 0;
  static CUdeviceptr memory = 0;
  static CUstream stream = nullptr;
  static CUevent event = nullptr;
  static CUmodule module = nullptr;
  static CUfunction function = nullptr;
  static CUgraphExec exec = nullptr;
  static void* pinned = nullptr;
  static std::size_t free = 0, total = 0;
  static int number = 0;
  void* const to = host.data();
  const void* const from = host.data();
  return {
      {"cuDeviceGetCount", With(&number)},
      {"cuDriverGetVersion", With(&number)},
      {"cuCtxGetCurrent", With(&context)},
      {"cuCtxGetDevice", With(&device)},
      {"cuCtxSetCurrent", With(things.context)},
      {"cuMemGetInfo_v2", With(&free, &total)},
      {"cuMemAlloc_v2", With(&memory, kBytes)},
      {"cuMemFree_v2", With(things.to_free)},
      {"cuMemAllocAsync", With(&memory, kBytes, things.stream)},
      {"cuMemHostAlloc", With(&pinned, kBytes, 0u)},
      {"cuMemcpyHtoD_v2", With(things.memory, from, kBytes)},
      {"cuMemcpyDtoH_v2", With(to, things.memory, kBytes)},
      {"cuMemcpyDtoHAsync_v2", With(to, things.memory, kBytes, things.stream)},
      {"cuMemsetD8Async", With(things.memory, static_cast<unsigned char>(1), kBytes, things.stream)},
      {"cuLaunchKernel", With(things.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, things.stream, static_cast<void**>(nullptr),
                              static_cast<void**>(nullptr))},
      {"cuGraphLaunch", With(things.exec, things.stream)},
      {"cuGraphInstantiateWithFlags", With(&exec, things.graph, 0ull)},
      {"cuCtxSynchronize", With()},
      {"cuStreamSynchronize", With(things.stream)},
      {"cuEventSynchronize", With(things.event)},
      {"cuStreamQuery", With(things.stream)},
      {"cuEventQuery", With(things.event)},
      {"cuEventRecord", With(things.event, things.stream)},
      {"cuEventCreate", With(&event, 0u)},
      {"cuStreamCreate", With(&stream, 1u)},
      {"cuModuleLoadData", With(&module, static_cast<const void*>(kNothing))},
      {"cuModuleGetFunction", With(&function, things.module, static_cast<const char*>("nothing"))},
      {"cuCtxCreate_v2", With(&context, 0u, CUdevice{0})},
      {"cuDevicePrimaryCtxRetain", With(&context, CUdevice{0})},
  };
}

// prepare: what the calls need, in the current context.
Reply Prepare(const Words&) {
  for (const CUresult result :
       {Call("cuCtxGetCurrent", &things.context), Call("cuMemAlloc_v2", &things.memory, kBytes),
        Call("cuMemAlloc_v2", &things.to_free, kBytes), Call("cuStreamCreate", &things.stream, 1u),
        Call("cuEventCreate", &things.event, 0u),
        Call("cuModuleLoadData", &things.module, static_cast<const void*>(kNothing)),
        Call("cuModuleGetFunction", &things.kernel, things.module, static_cast<const char*>("nothing")),
        Call("cuStreamBeginCapture_v2", things.stream, CU_STREAM_CAPTURE_MODE_RELAXED),
        Call("cuLaunchKernel", things.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, things.stream, static_cast<void**>(nullptr),
             static_cast<void**>(nullptr)),
        Call("cuStreamEndCapture", things.stream, &things.graph),
        Call("cuGraphInstantiateWithFlags", &things.exec, things.graph, 0ull),
        Call("cuEventRecord", things.event, things.stream), Call("cuStreamSynchronize", things.stream)}) {
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// calls: the names of those that there are.
Reply Names(const Words&) {
  std::string names;
  for (const auto& [name, caller] : Callers()) names += (names.empty() ? "" : " ") + name;
  return Reply(CUDA_SUCCESS).Add("names", names);
}

void* found = nullptr;

}  // namespace

void AddCallCommands(Commands& commands) {
  commands["prepare"] = Prepare;
  commands["calls"] = Names;
  // find exported|looked_up NAME: the function that `call NAME` calls next.
  commands["find"] = [](const Words& words) -> Reply {
    found = words.at(0) == "exported" ? Find(words.at(1).c_str()) : LookedUp(words.at(1));
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  };
  commands["call"] = [](const Words& words) -> Reply { return Callers().at(words.at(0))(found); };
}

}  // namespace tessera::shell
