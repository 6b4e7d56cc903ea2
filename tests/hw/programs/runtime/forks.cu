// fork before and after the first CUDA call, and fork with exec: a parent with a GPU and children with theirs.
#include <sys/wait.h>
#include <unistd.h>

#include "device_words.h"

static unsigned long long Work(uint32_t seed) {
  DeviceWords buffer(1 << 18);
  buffer.FillOn(nullptr, seed);
  buffer.MixOn(nullptr, seed);
  return buffer.Sum();
}

template <class Body>
static void InChild(const char* what, Body body) {
  std::fflush(stdout);
  pid_t child = fork();
  EXPECT(child >= 0);
  if (child == 0) {
    body();
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("%s: child ended with %d\n", what, status);
}

int main(int argc, char** argv) {
  if (argc > 1) {
    std::printf("exec'd %016llx\n", Work(30));
    return 0;
  }
  InChild("before the first call", [] { std::printf("child %016llx\n", Work(10)); });
  std::printf("parent %016llx\n", Work(20));
  InChild("after the first call", [] {
    void* piece;
    std::printf("alloc in the child: %s\n", Name(cudaMalloc(&piece, kMiB)));
  });
  InChild("fork and exec", [argv] {
    execl("/proc/self/exe", argv[0], "exec'd", nullptr);
    _exit(127);
  });
  int status = std::system("true");
  std::printf("a shell: %d, parent again %016llx\n", status, Work(40));
}
