// Streams and events: order across streams by events, by the legacy stream, and copies that overlap with kernels.
#include "device_words.h"

constexpr uint32_t kWords = 1 << 20;
constexpr int kStreams = 4;

// One buffer, four streams, each waits for the one before it.
static void Chain() {
  DeviceWords buffer(kWords);
  cudaStream_t stream[kStreams];
  cudaEvent_t event[kStreams];
  for (int i = 0; i < kStreams; ++i) {
    RT(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    RT(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
  }
  buffer.FillOn(stream[0], 7);
  for (int step = 0; step < 100; ++step) {
    int here = step % kStreams;
    buffer.MixOn(stream[here], step);
    RT(cudaEventRecord(event[here], stream[here]));
    RT(cudaStreamWaitEvent(stream[(here + 1) % kStreams], event[here], 0));
  }
  std::printf("chain %016llx\n", buffer.Sum());
  for (int i = 0; i < kStreams; ++i) {
    RT(cudaStreamQuery(stream[i]));
    RT(cudaEventQuery(event[i]));
    RT(cudaEventDestroy(event[i]));
    RT(cudaStreamDestroy(stream[i]));
  }
}

// Blocking streams and the legacy stream wait for one another without an event.
static void LegacyOrder() {
  DeviceWords buffer(kWords);
  cudaStream_t a, b;
  RT(cudaStreamCreate(&a));
  RT(cudaStreamCreate(&b));
  buffer.FillOn(a, 1);
  for (int step = 0; step < 50; ++step) {
    buffer.MixOn(a, step);
    buffer.MixOn(cudaStreamLegacy, step + 1000);
    buffer.MixOn(b, step + 2000);
    buffer.MixOn(nullptr, step + 3000);
  }
  std::printf("legacy %016llx\n", buffer.Sum());
  RT(cudaStreamDestroy(a));
  RT(cudaStreamDestroy(b));
}

static void Copies() {
  uint32_t* host;
  RT(cudaMallocHost(&host, kWords * 4));
  int least, greatest;
  RT(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream;
  RT(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  cudaEvent_t start, stop;
  RT(cudaEventCreate(&start));
  RT(cudaEventCreateWithFlags(&stop, cudaEventBlockingSync));
  DeviceWords buffer(kWords);
  for (uint32_t i = 0; i < kWords; ++i) host[i] = i;
  RT(cudaEventRecord(start, stream));
  for (int round = 0; round < 20; ++round) {
    RT(cudaMemcpyAsync(buffer.data, host, buffer.bytes(), cudaMemcpyHostToDevice, stream));
    buffer.MixOn(stream, round);
    RT(cudaMemcpyAsync(host, buffer.data, buffer.bytes(), cudaMemcpyDeviceToHost, stream));
  }
  RT(cudaEventRecord(stop, stream));
  RT(cudaEventSynchronize(stop));
  float elapsed_ms = -1;
  RT(cudaEventElapsedTime(&elapsed_ms, start, stop));
  EXPECT(elapsed_ms > 0);
  std::printf("copies %016llx priorities %d..%d\n", Checksum(host, kWords * 4), least, greatest);
  RT(cudaStreamDestroy(stream));
  RT(cudaFreeHost(host));
}

int main() {
  Chain();
  LegacyOrder();
  Copies();
}
