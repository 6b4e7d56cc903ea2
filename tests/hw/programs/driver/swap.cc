// A program whose memory is large, for the checks of swapping: "swap BYTES [BLOCK [STRIDE [mapped | plain [GPUS]]]]".
// It takes BYTES in blocks (of 1 GiB unless BLOCK says otherwise; mapped: each a handle of cuMemCreate), whose words it
// plants, one of every STRIDE (all of them, by default). With GPUS it does so on the first so many GPUs; "pass" and
// "check" are then about all of them, the other orders about the first. Says "ready PID SECONDS", and then does what
// the lines on standard input say, one after another. Each is answered by one line; times are seconds of
// CLOCK_MONOTONIC, and FROM and TO parts of the memory, 0 to 1:
//   pass N FROM TO         N times a kernel on each block       passed BEGIN FIRST END    FIRST: its first kernel's end
//   busy SECONDS FROM TO   as many as there is time for         busied KERNELS BEGIN END  of blocks of one size
//   long SECONDS           a kernel that takes so long          long BEGIN
//   wait                   for that                             waited END
//   check                  compares all words                   checked WRONG
//   sleep                  mapped blocks go to host memory      slept SECONDS
//   wake                   and come back where they were        woken SECONDS
//   copies BYTES           pinned copies                        copies OUT IN BOTH        bytes a second
//   managed BYTES          prefetches of managed memory         managed OUT IN            bytes a second
//   costs BYTES            cuMemAlloc and cuMemFree of 1 KiB,   costs A F A F A F         microseconds, medians
//                          2 MiB, BYTES
#include <memory>

#include "driver.h"
#include "mapped.h"
#include "rates.h"

namespace {

struct Block {
  CUdeviceptr data = 0;
  Mapped mapped;
  uint64_t words = 0;  // that are used
  uint32_t seed = 0, growths = 0;
};

// Of one GPU. Its context has to be current.
class Memory {
 public:
  Memory(uint64_t bytes, uint64_t block, uint64_t stride, bool mapped) : stride_(stride) {
    CU(cuCtxGetCurrent(&context_));
    CU(cuModuleGetFunction(&plant_, kernels_.module, "Plant"));
    CU(cuModuleGetFunction(&grow_, kernels_.module, "Grow"));
    CU(cuModuleGetFunction(&grow_late_, kernels_.module, "GrowLate"));
    CU(cuModuleGetFunction(&count_wrong_, kernels_.module, "CountWrong"));
    CU(cuMemAlloc(&wrong_, sizeof(uint32_t)));
    for (uint64_t left = bytes; left > 0;) {
      Block made{.seed = static_cast<uint32_t>(blocks_.size()) * 2654435761u};
      const uint64_t size = std::min(left, block);
      if (mapped) {
        made.data = made.mapped.Make(size);
      } else {
        CU(cuMemAlloc(&made.data, size));
      }
      made.words = size / 4 / stride_;
      Launch(plant_, made.words, &made.data, &made.words, &stride_, &made.seed);
      blocks_.push_back(made);
      left -= size;
    }
    CU(cuCtxSynchronize());
  }

  void MakeCurrent() const { CU(cuCtxSetCurrent(context_)); }

  // The blocks that begin in this part of the memory, at least one.
  std::vector<Block*> Part(double from, double to) {
    std::vector<Block*> part;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const double at = static_cast<double>(i) / static_cast<double>(blocks_.size());
      if (at >= from && at < to) part.push_back(&blocks_[i]);
    }
    if (part.empty() && !blocks_.empty()) part.push_back(&blocks_.front());
    return part;
  }

  void Grow(Block& block) {
    Launch(grow_, block.words, &block.data, &block.words, &stride_);
    ++block.growths;
  }

  void GrowLate(Block& block, double seconds) {
    uint64_t nanoseconds = static_cast<uint64_t>(seconds * 1e9);
    Launch(grow_late_, std::min<uint64_t>(block.words, 132 * kThreads), &block.data, &block.words, &stride_,
           &nanoseconds);
    ++block.growths;
  }

  void Sleep() {
    CU(cuCtxSynchronize());
    for (Block& block : blocks_) block.mapped.Sleep();
  }

  void Wake() {
    for (Block& block : blocks_) block.mapped.Wake();
  }

  uint32_t Wrong() {
    CU(cuMemsetD32(wrong_, 0, 1));
    for (Block& block : blocks_)
      Launch(count_wrong_, block.words, &block.data, &block.words, &stride_, &block.seed, &block.growths, &wrong_);
    uint32_t wrong = 0;
    CU(cuCtxSynchronize());
    CU(cuMemcpyDtoH(&wrong, wrong_, sizeof wrong));
    return wrong;
  }

 private:
  static constexpr uint64_t kThreads = 256, kMostBlocks = 1056;

  template <typename... Arguments>
  void Launch(CUfunction function, uint64_t words, Arguments*... arguments) {
    void* given[] = {arguments...};
    const auto blocks = static_cast<unsigned>(std::clamp<uint64_t>(words / kThreads, 1, kMostBlocks));
    CU(cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, given, nullptr));
  }

  Kernels kernels_;
  CUcontext context_ = nullptr;
  uint64_t stride_;
  CUfunction plant_, grow_, grow_late_, count_wrong_;
  CUdeviceptr wrong_ = 0;
  std::vector<Block> blocks_;
};

using Memories = std::vector<std::unique_ptr<Memory>>;

void Pass(const Memories& memories, double count, double from, double to) {
  const double begin = Now();
  double first = 0;
  for (int n = 0; n < static_cast<int>(count); ++n) {
    for (const auto& memory : memories) {
      memory->MakeCurrent();
      for (Block* block : memory->Part(from, to)) {
        memory->Grow(*block);
        if (first != 0) continue;
        CU(cuCtxSynchronize());
        first = Now();
      }
    }
    for (const auto& memory : memories) {
      memory->MakeCurrent();
      CU(cuCtxSynchronize());
    }
  }
  std::printf("passed %.6f %.6f %.6f\n", begin, first, Now());
}

void Check(const Memories& memories) {
  uint32_t wrong = 0;
  for (const auto& memory : memories) {
    memory->MakeCurrent();
    wrong += memory->Wrong();
  }
  std::printf("checked %u\n", wrong);
}

void Busy(Memory& memory, double seconds, double from, double to) {
  const std::vector<Block*> part = memory.Part(from, to);
  const double begin = Now();
  uint64_t kernels = 0;
  while (Now() < begin + seconds) {
    for (Block* block : part) memory.Grow(*block);
    CU(cuCtxSynchronize());
    kernels += part.size();
  }
  std::printf("busied %llu %.6f %.6f\n", static_cast<unsigned long long>(kernels), begin, Now());
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const uint64_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 0;
  const uint64_t block = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : kGiB;
  const uint64_t stride = argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 1;
  const bool mapped = argc > 4 && std::string(argv[4]) == "mapped";
  const int gpus = argc > 5 ? std::atoi(argv[5]) : 1;
  const double begin = Now();
  Memories memories;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    UseDevice(gpu);
    memories.push_back(std::make_unique<Memory>(bytes, block, stride, mapped));
  }
  const CUdevice device = UseDevice();
  Memory& memory = *memories.front();
  std::printf("ready %d %.6f\n", getpid(), Now() - begin);
  char line[256];
  while (std::fgets(line, sizeof line, stdin)) {
    char word[32] = "";
    double a = 0, from = 0, to = 1;
    std::sscanf(line, "%31s %lf %lf %lf", word, &a, &from, &to);
    const std::string order = word;
    memory.MakeCurrent();
    if (order == "pass") {
      Pass(memories, a, from, to);
    } else if (order == "busy") {
      Busy(memory, a, from, to);
    } else if (order == "long") {
      memory.GrowLate(*memory.Part(0, 1).front(), a);
      std::printf("long %.6f\n", Now());
    } else if (order == "wait") {
      CU(cuCtxSynchronize());
      std::printf("waited %.6f\n", Now());
    } else if (order == "check") {
      Check(memories);
    } else if (order == "sleep" || order == "wake") {
      const double since = Now();
      order == "sleep" ? memory.Sleep() : memory.Wake();
      std::printf("%s %.6f\n", order == "sleep" ? "slept" : "woken", Now() - since);
    } else if (order == "copies") {
      PrintCopies(static_cast<size_t>(a));
    } else if (order == "managed") {
      PrintManaged(device, static_cast<size_t>(a));
    } else if (order == "costs") {
      PrintCosts(static_cast<size_t>(a));
    } else {
      std::printf("no such order: %s\n", word);
    }
  }
}
