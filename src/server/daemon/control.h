#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/daemon/daemon.h"
#include "server/daemon/report.h"
#include "server/model/vgpu_request.h"

namespace tessera::server {

// What faces do with the daemon, from their own threads: each call runs on the event loop and waits for it. ESHUTDOWN
// when the loop ends before that.
class Control {
 public:
  // Both outlive this object, and the daemon serves until the loop ends.
  Control(EventLoop& loop, Daemon& daemon) : loop_(loop), daemon_(daemon) {}

  Result<std::vector<GpuReport>> Gpus();  // asks the devices, too, which may take milliseconds
  Result<std::vector<VGpuReport>> VGpus();
  Result<VGpuReport> VGpuNamed(const std::string& name);
  // What was found out about names of vGPUs and who made them holds as long as this is the same. Does not wait.
  std::uint64_t VGpuChanges() const { return daemon_.VGpuChanges(); }
  Result<std::vector<ProcessReport>> Processes(std::optional<pid_t> pid = {});  // asks the devices, too
  // As of the last time that they were asked: all, or one, which may use several GPUs.
  Result<std::vector<ProcessReport>> KnownProcesses(std::optional<pid_t> pid = {});

  Result<WholeReport> All();  // asks the devices once

  // What changes a vGPU or freezes something returns when it is written: if this daemon is killed, the next one knows.
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
  // What happened in the last `past` nanoseconds, as far as it is kept; or what was saved when something went wrong
  // last (ENOENT: nothing was).
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

  // What the daemon can and cannot do here.
  Result<std::vector<CheckReport>> Checks();

  bool Soft() const { return daemon_.Soft(); }
  bool Embedded() const { return daemon_.Embedded(); }

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
  std::mutex reloading_;
};

}  // namespace tessera::server
