#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "server/daemon/daemon.h"
#include "server/daemon/report.h"
#include "server/model/vgpu_request.h"

namespace tessera::server {

// The daemon as faces use it, from their own threads: each call runs on the event loop and waits for it. ESHUTDOWN when
// the loop ends before that.
class Control {
 public:
  // Both outlive this object, and the daemon serves until the loop ends.
  Control(EventLoop& loop, Daemon& daemon) : loop_(loop), daemon_(daemon) {}

  Result<std::vector<GpuReport>> Gpus();  // asks the devices, too, which may take milliseconds
  Result<std::vector<VGpuReport>> VGpus();
  Result<VGpuReport> VGpuNamed(const std::string& name);
  // A number that changes with every change of a vGPU: as long as it is the same, answers about vGPUs' names and makers
  // hold. Does not wait.
  std::uint64_t VGpuChanges() const { return daemon_.VGpuChanges(); }
  // All, or one, which may use several GPUs. Asks the devices, too, or has what they said the last time.
  enum class Devices { kAsk, kLastAnswer };
  Result<std::vector<ProcessReport>> Processes(std::optional<pid_t> pid = {}, Devices devices = Devices::kAsk);

  Result<WholeReport> All();  // asks the devices once

  // Calls that change a vGPU or freeze something return when that is written: if this daemon is killed, the next one
  // knows.
  Result<VGpuReport> Create(const VGpuRequest& request, uid_t uid);
  Result<VGpuReport> Change(const std::string& name, const VGpuRequest& request);
  // Only if it has this tag still, if one is given.
  Result<void> Remove(const std::string& name, bool force, const std::optional<std::string>& if_tag = {});

  // Any process that uses a GPU, managed or not; a vGPU with all its processes, also those to come.
  Result<void> FreezeProcess(pid_t pid, bool frozen);
  Result<void> FreezeVGpu(const std::string& name, bool frozen);
  // Brings a process's or a vGPU's memory out until `keep` bytes are left on each GPU. Returns at once, with what is
  // being moved. It comes back when it is used.
  Result<std::vector<EvictionReport>> EvictProcess(pid_t pid, std::uint64_t keep);
  Result<std::vector<EvictionReport>> EvictVGpu(const std::string& name, std::uint64_t keep);
  Result<ProcessReport> Adopt(pid_t pid, const std::string& vgpu);
  // The trace of the last `past` nanoseconds, as far as it is kept; or the one that was saved when something went wrong
  // last (ENOENT: none was).
  Result<TraceCopy> Trace(Nanos past);
  Result<TraceCopy> LastTrace();
  // How the configuration is read again, and what else is: that comes first, and an error of it keeps all as it is.
  // Before there are threads.
  void OnReload(std::function<Result<Config>()> read, std::function<Result<void>()> also) {
    read_config_ = std::move(read);
    also_reload_ = std::move(also);
  }
  // Reads it, and says what that changed. Any error: nothing is changed.
  Result<std::vector<ConfigChange>> Reload();

  // Checks of the things that the daemon can and cannot do here.
  Result<std::vector<CheckReport>> Checks();

  // Facts that hold for as long as the daemon runs.
  DaemonTraits Traits() const { return daemon_.Traits(); }

 private:
  // Runs the task on the loop, with the time at which it begins.
  template <typename Task>
  std::invoke_result_t<Task, Nanos> Run(Task task);
  // As Run, and waits until what it changed is written.
  template <typename Task>
  std::invoke_result_t<Task, Nanos> Keep(Task task);
  void Measure();

  EventLoop& loop_;
  Daemon& daemon_;
  std::function<Result<Config>()> read_config_;
  std::function<Result<void>()> also_reload_;
  Mutex reloading_;  // held while the configuration is read: one at a time
};

}  // namespace tessera::server
