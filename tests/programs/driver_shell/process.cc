// Look-ups, fork and exec.
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

// "/usr/lib/libcuda.so.1 cuMemAlloc_v2": where an address lies, and which exported variants of `name` are there.
std::string Whose(const std::string& name, void* address) {
  Dl_info info = {};
  if (!address || !dladdr(address, &info)) return "";
  std::string text = info.dli_fname;
  for (const char* version : {"", "_v2", "_v3", "_v4"}) {
    for (const char* stream : {"", "_ptsz", "_ptds"}) {
      const std::string variant = name + version + stream;
      if (Exported(variant.c_str()) == address) text += " " + variant;
    }
  }
  return text;
}

// lookup VERSION FLAGS NAME...: what both cuGetProcAddress answer; a name that they differ about reads "differ".
Reply LookUp(const Words& words) {
  const int version = static_cast<int>(NumberAt(words, 0));
  const std::uint64_t flags = NumberAt(words, 1);
  Reply reply(CUDA_SUCCESS);
  for (std::size_t i = 2; i < words.size(); ++i) {
    void *first = nullptr, *second = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    const char* name = words[i].c_str();
    Call("cuGetProcAddress", name, &first, version, flags);
    Call("cuGetProcAddress_v2", name, &second, version, flags, &status);
    reply.Add(words[i], first == second ? Whose(words[i], first) : "differ");
  }
  return reply;
}

// The results of cuInit and of making a context in a forked child.
struct ChildReport {
  CUresult init = CUDA_ERROR_UNKNOWN;
  CUresult context = CUDA_ERROR_UNKNOWN;
};

[[noreturn]] void TryInChild(int report_fd) {
  ChildReport report;
  CUcontext context = nullptr;
  report.init = Call("cuInit", 0u);
  report.context = Call("cuCtxCreate_v2", &context, 0u, CUdevice{0});
  const bool written = write(report_fd, &report, sizeof report) == sizeof report;
  _exit(written ? 0 : 1);
}

// fork: what a child gets that uses CUDA. "hangs": 1 if it never says.
Reply Fork(const Words&) {
  constexpr int kPatienceMs = 20'000;
  int ends[2];
  if (pipe(ends) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const pid_t child = fork();
  if (child < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (child == 0) TryInChild(ends[1]);
  close(ends[1]);
  pollfd wait = {.fd = ends[0], .events = POLLIN, .revents = 0};
  const bool ready = poll(&wait, 1, kPatienceMs) > 0;
  ChildReport report;
  const bool said = ready && read(ends[0], &report, sizeof report) == sizeof report;
  close(ends[0]);
  if (!ready) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  return Reply(CUDA_SUCCESS)
      .Add("hangs", !ready)
      .Add("crashed", ready && !said)
      .Add("init", report.init)
      .Add("context", report.context);
}

// exec: becomes a new driver_shell. Answers before it does, so that nobody sends on what the old one would read ahead.
Reply Exec(const Words&) {
  std::cout << Reply(CUDA_SUCCESS).Json() << '\n' << std::flush;
  execl("/proc/self/exe", "driver_shell", static_cast<char*>(nullptr));
  _exit(1);
}

}  // namespace

void AddProcessCommands(Commands& commands) {
  commands["lookup"] = LookUp;
  commands["fork"] = Fork;
  commands["exec"] = Exec;
  commands["forget_environment"] = [](const Words&) -> Reply {
    return clearenv() == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  };
}

}  // namespace tessera::shell
