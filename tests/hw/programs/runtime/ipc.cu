// Two processes share one allocation and one event by IPC handles. The parent owns them, the child changes the words.
#include <sys/wait.h>
#include <unistd.h>

#include "device_words.h"

constexpr uint32_t kWords = 1 << 22;

struct Handles {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

static void Child(int in, int out) {
  Handles handles;
  EXPECT(read(in, &handles, sizeof handles) == sizeof handles);
  uint32_t* data = nullptr;
  cudaEvent_t event;
  RT(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data), handles.memory, cudaIpcMemLazyEnablePeerAccess));
  RT(cudaIpcOpenEventHandle(&event, handles.event));
  cudaStream_t stream;
  RT(cudaStreamCreate(&stream));
  RT(cudaStreamWaitEvent(stream, event, 0));
  Mix<<<64, 256, 0, stream>>>(data, kWords, 41);
  RT(cudaGetLastError());
  RT(cudaStreamSynchronize(stream));
  std::vector<uint32_t> host(kWords);
  RT(cudaMemcpy(host.data(), data, kWords * 4, cudaMemcpyDeviceToHost));
  unsigned long long sum = Checksum(host.data(), kWords * 4);
  RT(cudaIpcCloseMemHandle(data));
  RT(cudaEventDestroy(event));
  EXPECT(write(out, &sum, sizeof sum) == sizeof sum);
}

int main() {
  int to_child[2], to_parent[2];
  EXPECT(pipe(to_child) == 0 && pipe(to_parent) == 0);
  pid_t child = fork();  // before the first CUDA call: each side has a context of its own
  EXPECT(child >= 0);
  if (child == 0) {
    close(to_child[1]);
    Child(to_child[0], to_parent[1]);
    std::fflush(stdout);
    _exit(0);
  }
  close(to_parent[1]);
  DeviceWords buffer(kWords);
  cudaEvent_t event;
  RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  Handles handles;
  RT(cudaIpcGetMemHandle(&handles.memory, buffer.data));
  RT(cudaIpcGetEventHandle(&handles.event, event));
  buffer.FillOn(nullptr, 40);
  RT(cudaEventRecord(event, nullptr));
  EXPECT(write(to_child[1], &handles, sizeof handles) == sizeof handles);
  unsigned long long theirs = 0;
  EXPECT(read(to_parent[0], &theirs, sizeof theirs) == sizeof theirs);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(status == 0);
  unsigned long long ours = buffer.Sum();
  std::printf("child %016llx parent %016llx\n", theirs, ours);
  EXPECT(theirs == ours);
}
