// Launches of a kernel that counts itself: how often it ran is what the program reads back.
#include <dlfcn.h>

#include <algorithm>
#include <thread>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

// count(counter, spins): loops `spins` times, then adds 1 to *counter.
constexpr char kKernel[] = R"(
.version 6.4
.target sm_60
.address_size 64
.visible .entry count(.param .u64 count_counter, .param .u32 count_spins)
{
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [count_counter];
  ld.param.u32 %r1, [count_spins];
  cvta.to.global.u64 %rd2, %rd1;
  setp.eq.s32 %p1, %r1, 0;
  @%p1 bra COUNT_END;
COUNT_STEP:
  add.s32 %r1, %r1, -1;
  setp.ne.s32 %p2, %r1, 0;
  @%p2 bra COUNT_STEP;
COUNT_END:
  atom.global.add.u32 %r2, [%rd2], 1;
  ret;
}
)";

// The kernel and its counter in one context. The counter lies in host memory, which may be looked at at any time.
struct Counting {
  CUfunction kernel = nullptr;
  volatile std::uint32_t* counter = nullptr;
};

// In the current context; made at its first use there.
const Counting* Current() {
  static std::map<CUcontext, Counting> all;
  CUcontext context = nullptr;
  if (Call("cuCtxGetCurrent", &context) != CUDA_SUCCESS || !context) return nullptr;
  Counting& counting = all[context];
  if (counting.kernel) return &counting;
  CUmodule module = nullptr;
  if (Call("cuModuleLoadData", &module, static_cast<const void*>(kKernel)) != CUDA_SUCCESS) return nullptr;
  void* memory = nullptr;
  if (Call("cuMemHostAlloc", &memory, sizeof *counting.counter, unsigned{CU_MEMHOSTALLOC_DEVICEMAP}) != CUDA_SUCCESS)
    return nullptr;
  counting.counter = static_cast<volatile std::uint32_t*>(memory);
  *counting.counter = 0;
  if (Call("cuModuleGetFunction", &counting.kernel, module, static_cast<const char*>("count")) != CUDA_SUCCESS)
    return nullptr;
  return &counting;
}

CUresult Launch(const Counting& counting, unsigned times, unsigned spins, CUstream stream,
                const char* how = "cuLaunchKernel") {
  auto counter = reinterpret_cast<CUdeviceptr>(counting.counter);
  void* parameters[] = {&counter, &spins};
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < times && result == CUDA_SUCCESS; ++i)
    result = Call(how, counting.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, static_cast<void**>(parameters),
                  static_cast<void**>(nullptr));
  return result;
}

// Calls one after the other until one fails.
CUresult InOrder(std::initializer_list<std::function<CUresult()>> calls) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& call : calls) {
    result = call();
    if (result != CUDA_SUCCESS) break;
  }
  return result;
}

unsigned SpinsAt(const Words& words, std::size_t index) {
  return index < words.size() ? static_cast<unsigned>(NumberAt(words, index)) : 0;
}

// launch TIMES [SPINS]: on the default stream.
Reply LaunchHere(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  return Launch(*counting, static_cast<unsigned>(NumberAt(words, 0)), SpinsAt(words, 1), nullptr);
}

// launch_on ADDRESS TIMES: the kernel counts there.
Reply LaunchOn(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  Counting there = *counting;
  there.counter = reinterpret_cast<volatile std::uint32_t*>(NumberAt(words, 0));
  return Launch(there, static_cast<unsigned>(NumberAt(words, 1)), 0, nullptr);
}

// fault SPINS: the kernel spins and then ends the context by an illegal address.
Reply Fault(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  Counting bad = *counting;
  bad.counter = reinterpret_cast<volatile std::uint32_t*>(sizeof *bad.counter);
  return Launch(bad, 1, SpinsAt(words, 0), nullptr);
}

// launch_null TIMES: no kernel at all, which only a driver that does nothing takes.
Reply LaunchNull(const Words& words) { return Launch({}, static_cast<unsigned>(NumberAt(words, 0)), 0, nullptr); }

// How often the kernel ran in the current context.
Reply Count(const Words&) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = Call("cuCtxSynchronize");
  return Reply(result).Add("count", *counting->counter);
}

// threads N TIMES: N threads, each with a stream of its own, all at once.
Reply LaunchFromThreads(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext context = nullptr;
  Call("cuCtxGetCurrent", &context);
  const auto times = static_cast<unsigned>(NumberAt(words, 1));
  std::vector<CUresult> results(NumberAt(words, 0));
  std::vector<std::thread> threads;
  for (CUresult& result : results)
    threads.emplace_back([&] {
      CUstream stream = nullptr;
      result = InOrder(
          {[&] { return Call("cuCtxSetCurrent", context); }, [&] { return Call("cuStreamCreate", &stream, 1u); },
           [&] { return Launch(*counting, times, 0, stream); }, [&] { return Call("cuStreamSynchronize", stream); },
           [&] { return Call("cuStreamDestroy_v2", stream); }});
    });
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(results.begin(), results.end());
}

// per_thread TIMES: what a program built with --default-stream per-thread calls.
Reply LaunchPerThread(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = Launch(*counting, static_cast<unsigned>(NumberAt(words, 0)), 0, nullptr, "cuLaunchKernel_ptsz");
  if (result == CUDA_SUCCESS) result = Call("cuStreamSynchronize_ptsz", CUstream{});
  std::uint32_t count = 0;
  if (result == CUDA_SUCCESS)
    result = Call("cuMemcpyDtoH_v2_ptds", static_cast<void*>(&count), reinterpret_cast<CUdeviceptr>(counting->counter),
                  sizeof count);
  return Reply(result).Add("count", count);
}

// capture TIMES SPINS: launches TIMES kernels, captures as many, says how many nodes that gave, and launches the graph
// once. The capture lasts until the work before it has ended, so that whoever looks for that end does so meanwhile.
Reply Capture(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  std::size_t nodes = 0;
  const auto times = static_cast<unsigned>(NumberAt(words, 0));
  const unsigned spins = SpinsAt(words, 1);
  const std::uint32_t before = *counting->counter;
  const auto wait = [&] {
    while (*counting->counter < before + times) std::this_thread::yield();
    return CUDA_SUCCESS;
  };
  const CUresult result = InOrder(
      {[&] { return Call("cuStreamCreate", &stream, 1u); }, [&] { return Launch(*counting, times, spins, stream); },
       [&] { return Call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_GLOBAL); },
       [&] { return Launch(*counting, times - times / 2, spins, stream); }, wait,
       [&] { return Launch(*counting, times / 2, spins, stream); },
       [&] { return Call("cuStreamEndCapture", stream, &graph); },
       [&] { return Call("cuGraphGetNodes", graph, static_cast<CUgraphNode*>(nullptr), &nodes); },
       [&] { return Call("cuGraphInstantiateWithFlags", &executable, graph, 0ull); },
       [&] { return Call("cuGraphLaunch", executable, stream); }, [&] { return Call("cuStreamSynchronize", stream); },
       [&] { return Call("cuGraphExecDestroy", executable); }, [&] { return Call("cuGraphDestroy", graph); },
       [&] { return Call("cuStreamDestroy_v2", stream); }});
  return Reply(result).Add("nodes", static_cast<long long>(nodes));
}

// graph_on ADDRESS: makes a graph of a kernel that counts there, which graph_launch launches.
CUgraphExec made_graph = nullptr;
Reply GraphOn(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  Counting there = *counting;
  there.counter = reinterpret_cast<volatile std::uint32_t*>(NumberAt(words, 0));
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  return InOrder({[&] { return Call("cuStreamCreate", &stream, 1u); },
                  [&] { return Call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_GLOBAL); },
                  [&] { return Launch(there, 1, 0, stream); },
                  [&] { return Call("cuStreamEndCapture", stream, &graph); },
                  [&] { return Call("cuGraphInstantiateWithFlags", &made_graph, graph, 0ull); },
                  [&] { return Call("cuGraphDestroy", graph); }, [&] { return Call("cuStreamDestroy_v2", stream); }});
}

// drop_stream TIMES SPINS: destroys a stream while its work is under way.
Reply DropStream(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  CUstream stream = nullptr;
  return InOrder(
      {[&] { return Call("cuStreamCreate", &stream, 1u); },
       [&] { return Launch(*counting, static_cast<unsigned>(NumberAt(words, 0)), SpinsAt(words, 1), stream); },
       [&] { return Call("cuStreamDestroy_v2", stream); }});
}

// The word for which the work of `hold` waits, in host memory.
CUdeviceptr Word() {
  static void* word = nullptr;
  if (!word && Call("cuMemHostAlloc", &word, sizeof(std::uint32_t),
                    unsigned{CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE}) == CUDA_SUCCESS)
    *static_cast<volatile std::uint32_t*>(word) = 0;
  return reinterpret_cast<CUdeviceptr>(word);
}

// hold: a blocking stream waits, until `let_go` writes a word on another one.
Reply Hold(const Words&) {
  CUstream stream = nullptr;
  return InOrder({[&] { return Call("cuStreamCreate", &stream, 0u); },
                  [&] { return Call("cuStreamWaitValue32_v2", stream, Word(), std::uint32_t{1}, 0u); }});
}

Reply LetGo(const Words&) {
  CUstream stream = nullptr;
  return InOrder({[&] { return Call("cuStreamCreate", &stream, 0u); },
                  [&] { return Call("cuStreamWriteValue32_v2", stream, Word(), std::uint32_t{1}, 0u); }});
}

// The stream of begin_capture, until end_capture.
CUstream& Captured() {
  static CUstream stream = nullptr;
  return stream;
}

// begin_capture SPINS: launches a kernel that spins, and begins to capture another stream before anybody can have
// placed a marker behind it.
Reply BeginCapture(const Words& words) {
  const Counting* counting = Current();
  if (!counting) return CUDA_ERROR_INVALID_CONTEXT;
  CUstream working = nullptr;
  return InOrder({[&] { return Call("cuStreamCreate", &working, 1u); },
                  [&] { return Call("cuStreamCreate", &Captured(), 1u); },
                  [&] { return Launch(*counting, 1, SpinsAt(words, 0), working); },
                  [&] { return Call("cuStreamBeginCapture_v2", Captured(), CU_STREAM_CAPTURE_MODE_RELAXED); }});
}

// end_capture: of nothing, and waits for all work.
Reply EndCapture(const Words&) {
  CUgraph graph = nullptr;
  return InOrder({[&] { return Call("cuStreamEndCapture", Captured(), &graph); },
                  [&] { return Call("cuGraphDestroy", graph); }, [&] { return Call("cuCtxSynchronize"); }});
}

// load_unseen PATH: loads code by that library, the driver itself, so that nobody in front of it sees the call: what a
// driver does by itself within any other.
Reply LoadUnseen(const Words& words) {
  void* const driver = dlopen(words.at(0).c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const load = driver ? dlsym(driver, "cuModuleLoadData") : nullptr;
  if (!load) return CUDA_ERROR_NOT_FOUND;
  CUmodule module = nullptr;
  return reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(load)(&module, kKernel);
}

// drop_capture: destroys a stream that captures.
Reply DropCapture(const Words&) {
  CUstream stream = nullptr;
  return InOrder({[&] { return Call("cuStreamCreate", &stream, 1u); },
                  [&] { return Call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_GLOBAL); },
                  [&] { return Call("cuStreamDestroy_v2", stream); }});
}

}  // namespace

void AddWorkCommands(Commands& commands) {
  commands["launch"] = LaunchHere;
  commands["launch_on"] = LaunchOn;
  commands["fault"] = Fault;
  commands["launch_null"] = LaunchNull;
  commands["sync"] = [](const Words&) -> Reply { return Call("cuCtxSynchronize"); };
  commands["count"] = Count;
  commands["threads"] = LaunchFromThreads;
  commands["per_thread"] = LaunchPerThread;
  commands["capture"] = Capture;
  commands["begin_capture"] = BeginCapture;
  commands["end_capture"] = EndCapture;
  commands["load_unseen"] = LoadUnseen;
  commands["drop_capture"] = DropCapture;
  commands["graph_on"] = GraphOn;
  commands["graph_launch"] = [](const Words&) -> Reply { return Call("cuGraphLaunch", made_graph, CUstream{}); };
  commands["drop_stream"] = DropStream;
  commands["hold"] = Hold;
  commands["let_go"] = LetGo;
}

}  // namespace tessera::shell
