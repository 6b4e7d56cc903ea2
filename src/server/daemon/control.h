#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "server/daemon/daemon.h"
#include "server/daemon/report.h"
#include "server/model/vgpu_request.h"
#include "server/record/events.h"

namespace tessera::server {

// The configuration as it can be read again while the daemon runs. Any thread; Read by one at a time.
struct ConfigReader {
  std::function<Result<Config>()> read;
  std::function<Result<void>()> also;  // what else is read; comes first, and an error of it keeps all as it is
  Mutex reading;
};

// The daemon as faces use it for one caller, from their own threads: each call runs on the event loop and waits for it.
// ESHUTDOWN when the loop ends before that. The authority is asked for each call: callers get EPERM for what they may
// not do, ENOENT for vGPUs and processes that they may not see, and lists without those. Cheap to copy.
class Control {
 public:
  // For the daemon itself, an operator. All outlive this object, and the daemon serves until the loop ends. Without a
  // reader there is no configuration to reload.
  Control(EventLoop& loop, Daemon& daemon, ConfigReader* reader = nullptr)
      : loop_(loop), daemon_(daemon), reader_(reader), caller_(daemon.Access().Operator()) {}

  // The same for a process of this user in these groups. Any thread.
  Control For(uid_t uid, std::vector<gid_t> groups) const;
  const Caller& Who() const { return caller_; }

  // Operators' calls ask the devices, too, which may take milliseconds, or have what they said the last time. Others
  // get totals alone, as of the last time.
  enum class Devices { kAsk, kLastAnswer };
  Result<std::vector<GpuReport>> Gpus(Devices devices = Devices::kAsk);
  Result<std::vector<VGpuReport>> VGpus();
  Result<VGpuReport> VGpuNamed(const std::string& name);
  // A number that changes with every change of a vGPU: as long as it is the same, answers about vGPUs' names and makers
  // hold. Does not wait.
  std::uint64_t VGpuChanges() const { return daemon_.VGpuChanges(); }
  // All, or one, which may use several GPUs.
  Result<std::vector<ProcessReport>> Processes(std::optional<pid_t> pid = {}, Devices devices = Devices::kAsk);

  Result<WholeReport> All();  // asks the devices once

  // Calls that change a vGPU or freeze something return when that is written: if this daemon is killed, the next one
  // knows.
  Result<VGpuReport> Create(const VGpuRequest& request);  // for the caller
  // `wait`: if the request lowers memory.limit, returns when memory above it has left the GPU (LimitWaits).
  Result<VGpuReport> Change(const std::string& name, const VGpuRequest& request, bool wait = false);
  // Only if it has this tag still, if one is given.
  Result<void> Remove(const std::string& name, bool force, const std::optional<std::string>& if_tag = {});

  // A process, or a vGPU by its name.
  using Subject = std::variant<pid_t, std::string>;
  // Any process that uses a GPU, managed or not; a vGPU with all its processes, also those to come.
  Result<void> Freeze(const Subject& subject, bool frozen);
  // Brings a process's or a vGPU's memory out until `keep` bytes are left on each GPU. Returns at once, with what is
  // being moved. It comes back when it is used.
  Result<std::vector<EvictionReport>> Evict(const Subject& subject, std::uint64_t keep);
  Result<ProcessReport> Adopt(pid_t pid, const std::string& vgpu);
  // The trace of the last `past` nanoseconds, as far as it is kept; without `past` the one that was saved when
  // something went wrong last (ENOENT: none was).
  Result<TraceCopy> Trace(std::optional<Nanos> past);
  // The events after a number that the caller may see, at most so many. Does not wait for the loop.
  Result<events::Batch> Events(std::uint64_t after, std::size_t most) const;
  // Reads the configuration again, and says what that changed. Any error: nothing is changed.
  Result<std::vector<ConfigChange>> Reload();

  // Checks of the things that the daemon can and cannot do here.
  Result<std::vector<CheckReport>> Checks();

  // Facts that hold for as long as the daemon runs.
  DaemonTraits Traits() const { return daemon_.Traits(); }

 private:
  friend class DrainControl;
  friend class OverviewControl;
  friend class SpaceControl;
  friend class SuspensionControl;

  // Runs the task on the loop, with the time at which it begins, if the caller may do the operation, where it acts on
  // nothing in particular.
  template <typename Task>
  std::invoke_result_t<Task, Nanos> Run(Operation operation, Task task);
  // As Run, with a vGPU that the caller may do the operation on.
  template <typename Task>
  std::invoke_result_t<Task, VGpu&, Nanos> RunOn(Operation operation, const std::string& vgpu, Task task);
  // As Run, with a process.
  template <typename Task>
  std::invoke_result_t<Task, Nanos> RunOn(Operation operation, pid_t pid, Task task);
  // Waits until what the answer changed is written.
  template <typename Answer>
  Answer Keep(Answer answer);
  template <typename Task>
  std::invoke_result_t<Task> OnLoop(Task task);
  Result<void> FreezeProcess(pid_t pid, bool frozen);
  Result<void> FreezeVGpu(const std::string& name, bool frozen);
  Result<std::vector<EvictionReport>> EvictProcess(pid_t pid, std::uint64_t keep);
  Result<std::vector<EvictionReport>> EvictVGpu(const std::string& name, std::uint64_t keep);
  Result<void> Allowed(Operation operation, const VGpu& vgpu) const;
  // The vGPU of this name, if the caller may do that with it.
  Result<VGpu*> FindAllowed(Operation operation, const std::string& name) const;
  VGpuTable::Admission WithinQuota(const VGpuRequest& request) const;
  Result<void> AllowedOnAll(Operation operation, pid_t pid) const;
  bool MaySee(const ProcessReport& process) const;
  VGpuReport Report(const VGpu& vgpu, Nanos now) const;
  std::vector<VGpuReport> ReportSeen(Nanos now) const;
  std::vector<ProcessReport> ReportSeen(Nanos now, std::optional<pid_t> pid) const;
  void Measure();

  EventLoop& loop_;
  Daemon& daemon_;
  ConfigReader* reader_;
  Caller caller_;
};

}  // namespace tessera::server
