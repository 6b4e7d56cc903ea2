#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/testing/temporary_folder.h"
#include "server/daemon/control.h"
#include "server/daemon/daemon.h"
#include "server/loop/listeners.h"
#include "server/testing/fake_client.h"
#include "server/testing/fake_driver.h"

namespace tessera::server {

// A daemon with fake GPUs that serves a directory of its own from a thread, until Stop.
class TestDaemon {
 public:
  struct Setup {
    unsigned gpus = 1;
    std::uint64_t memory = 10 * kGiB;  // of each
    Config config;
    std::function<std::unique_ptr<channel::Control>()> control;  // empty: channels cannot be steered
    bool exit_when_idle = false;
    UserBounds::Most user_bounds = UserBounds::Usual();
    std::string run_dir;    // empty: a new one, which goes with the daemon
    std::string state_dir;  // empty: the run directory
  };
  TestDaemon() : TestDaemon(Setup{}) {}
  explicit TestDaemon(Setup setup);
  ~TestDaemon();

  void EndLoop();  // first half of Stop: nothing is served any more
  void Stop();     // ends it in order
  void WaitEnd();  // until it ends by itself

  const std::string& RunDir() const { return run_dir_; }
  UniqueFd TakeApiListener() { return std::move(listeners_->api); }
  Control& Api() { return *control_; }
  FakeDriver& Driver() { return *driver_; }
  EventLoop& Loop() { return *loop_; }
  // On the loop's thread.
  GpuServer& Gpu() { return *daemon_->Gpus().at(0); }
  Daemon& Whole() { return *daemon_; }

  // Makes a vGPU; fails the test if that fails.
  void Make(const VGpuRequest& request);

  // A program that has joined `vgpu` and attached to the GPU.
  FakeClient Connect(const std::string& vgpu, std::uint32_t gpu = 0);

  VGpuReport Report(const std::string& vgpu);

  // Asks the daemon until `true_of` its answer (BecomesTrue).
  bool Eventually(const std::function<bool()>& true_of) const;

 private:
  std::optional<TemporaryFolder> own_run_dir_;
  std::string run_dir_;
  std::optional<Listeners> listeners_;
  FakeDriver* driver_ = nullptr;  // the daemon's
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Control> control_;
  std::thread thread_;
};

}  // namespace tessera::server
