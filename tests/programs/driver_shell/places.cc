// Which multiprocessors a kernel runs on.
#include <algorithm>
#include <span>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

constexpr unsigned kWords = 1024, kBlocks = 4096;

// place(words): each block sets the word of the multiprocessor that it runs on.
constexpr char kPlacesKernel[] = R"(
.version 6.4
.target sm_60
.address_size 64
.visible .entry place(.param .u64 place_words)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [place_words];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %smid;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  mov.u32 %r2, 1;
  st.global.u32 [%rd4], %r2;
  ret;
}
)";

CUresult CaptureLaunch(CUfunction kernel, void** parameters, CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUresult result = Call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  if (result != CUDA_SUCCESS) return result;
  result = Call("cuLaunchKernel", kernel, kBlocks, 1u, 1u, 32u, 1u, 1u, 0u, stream, parameters,
                static_cast<void**>(nullptr));
  const CUresult ended = Call("cuStreamEndCapture", stream, &graph);
  if (result != CUDA_SUCCESS || ended != CUDA_SUCCESS) return result != CUDA_SUCCESS ? result : ended;
  result = Call("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  return result != CUDA_SUCCESS ? result : Call("cuGraphLaunch", exec, stream);
}

// places default|stream|graph: launches there, and says on how many multiprocessors that ran, and the first of them.
Reply Places(const Words& words) {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  void* memory = nullptr;
  CUresult result = CUDA_SUCCESS;
  const auto step = [&result](CUresult done) { return (result = done) == CUDA_SUCCESS; };
  if (words.at(0) != "default" && !step(Call("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING})))
    return result;
  if (!step(Call("cuModuleLoadData", &module, static_cast<const void*>(kPlacesKernel))) ||
      !step(Call("cuModuleGetFunction", &kernel, module, static_cast<const char*>("place"))) ||
      !step(Call("cuMemHostAlloc", &memory, std::size_t{kWords * 4}, unsigned{CU_MEMHOSTALLOC_DEVICEMAP})))
    return result;
  const std::span places(static_cast<std::uint32_t*>(memory), kWords);
  std::ranges::fill(places, 0);
  auto address = reinterpret_cast<CUdeviceptr>(memory);
  void* parameters[] = {&address};
  if (!step(words.at(0) == "graph" ? CaptureLaunch(kernel, parameters, stream)
                                   : Call("cuLaunchKernel", kernel, kBlocks, 1u, 1u, 32u, 1u, 1u, 0u, stream,
                                          static_cast<void**>(parameters), static_cast<void**>(nullptr))) ||
      !step(Call("cuCtxSynchronize")))
    return result;
  return Reply(result)
      .Add("count", std::ranges::count(places, 1u))
      .Add("first", std::ranges::find(places, 1u) - places.begin());
}

}  // namespace

void AddPlaceCommands(Commands& commands) { commands["places"] = Places; }

}  // namespace tessera::shell
