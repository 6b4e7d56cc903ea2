// On how many SMs work runs: that of the default stream, of other streams, of other threads and of graphs. A line for
// each kind of work.
//
//   places          tells that and ends
//   places wait     tells it for each line that it reads: "default" for the default stream alone, or "all"
#include <cstring>
#include <thread>

#include "check.h"

constexpr int kSets = 8;  // of 32 SMs

static __global__ void Mark(unsigned* sets) {
  unsigned sm;
  asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
  if (threadIdx.x == 0 && sm < 32 * kSets) atomicOr(&sets[sm / 32], 1u << (sm % 32));
  for (int i = 0; i < 200; ++i) __nanosleep(100);  // so that blocks spread over all SMs
}

static unsigned* sets;

static void Launch(cudaStream_t stream) {
  Mark<<<1024, 1024, 0, stream>>>(sets);
  RT(cudaGetLastError());
}

static void Tell(const char* what) {
  RT(cudaDeviceSynchronize());
  unsigned found[kSets];
  RT(cudaMemcpy(found, sets, sizeof found, cudaMemcpyDeviceToHost));
  RT(cudaMemset(sets, 0, sizeof found));
  RT(cudaDeviceSynchronize());
  int count = 0;
  for (const unsigned set : found) count += __builtin_popcount(set);
  std::printf("%s %d\n", what, count);
  std::fflush(stdout);
}

static void TellAll() {
  Launch(nullptr);
  Tell("default");
  cudaStream_t blocking, free_running;
  RT(cudaStreamCreate(&blocking));
  RT(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking));
  Launch(blocking);
  Tell("stream");
  Launch(free_running);
  Tell("nonblocking");
  std::thread([] {
    Launch(nullptr);
    RT(cudaDeviceSynchronize());
  }).join();
  Tell("thread");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  RT(cudaStreamBeginCapture(free_running, cudaStreamCaptureModeThreadLocal));
  Launch(free_running);
  RT(cudaStreamEndCapture(free_running, &graph));
  RT(cudaGraphInstantiate(&exec, graph, 0));
  RT(cudaGraphLaunch(exec, free_running));
  Tell("graph");
  RT(cudaGraphLaunch(exec, nullptr));
  Tell("graph_default");
  RT(cudaSetDevice(0));
  Launch(nullptr);
  Tell("set_device");
  RT(cudaGraphExecDestroy(exec));
  RT(cudaGraphDestroy(graph));
  RT(cudaStreamDestroy(blocking));
  RT(cudaStreamDestroy(free_running));
}

int main(int argc, char** argv) {
  RT(cudaMalloc(&sets, kSets * sizeof *sets));
  RT(cudaMemset(sets, 0, kSets * sizeof *sets));
  if (argc < 2 || std::strcmp(argv[1], "wait") != 0) {
    TellAll();
    return 0;
  }
  for (char line[64]; std::fgets(line, sizeof line, stdin);) {
    if (std::strncmp(line, "all", 3) == 0) {
      TellAll();
    } else {
      Launch(nullptr);
      Tell("default");
    }
  }
}
