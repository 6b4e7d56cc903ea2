#include "server/testing/test_daemon.h"

#include <gtest/gtest.h>

#include "base/testing/wait_until.h"

namespace tessera::server {

TestDaemon::TestDaemon(Setup setup) : run_dir_(setup.run_dir) {
  if (run_dir_.empty()) run_dir_ = own_run_dir_.emplace().path();
  if (setup.config.swap_size.empty()) setup.config.swap_size = "0";  // what moves memory is tested by itself
  auto driver = std::make_unique<FakeDriver>(setup.gpus, setup.memory);
  driver_ = driver.get();
  loop_ = std::move(*EventLoop::Create());
  auto listeners = Listeners::Open(run_dir_);
  if (!listeners) ADD_FAILURE() << listeners.error().Text();
  auto daemon = Daemon::Start(*loop_, std::move(driver),
                              {.config = setup.config,
                               .run_dir = run_dir_,
                               .state_dir = setup.state_dir,
                               .client_listener = std::move(listeners->client),
                               .control = setup.control ? setup.control() : nullptr,
                               .user_bounds = setup.user_bounds,
                               .exit_when_idle = setup.exit_when_idle});
  if (!daemon) ADD_FAILURE() << daemon.error().Text();
  daemon_ = std::move(*daemon);
  control_ = std::make_unique<Control>(*loop_, *daemon_);
  listeners_.emplace(std::move(*listeners));
  thread_ = std::thread([this] { EXPECT_TRUE(loop_->Run()); });
}

TestDaemon::~TestDaemon() { Stop(); }

void TestDaemon::EndLoop() {
  loop_->Post([this] { loop_->Stop(); });
  if (thread_.joinable()) thread_.join();
}

void TestDaemon::Stop() {
  EndLoop();
  daemon_.reset();
  listeners_.reset();
}

void TestDaemon::WaitEnd() {
  if (thread_.joinable()) thread_.join();
}

void TestDaemon::Make(const VGpuRequest& request) {
  auto made = control_->Create(request);
  if (!made) ADD_FAILURE() << made.error().Text();
}

FakeClient TestDaemon::Connect(const std::string& vgpu, std::uint32_t gpu) {
  FakeClient client(run_dir_);
  client.Hello(vgpu);
  client.Attach(FakeDriver::UuidOf(gpu));
  return client;
}

VGpuReport TestDaemon::Report(const std::string& vgpu) {
  auto report = control_->VGpuNamed(vgpu);
  if (report) return std::move(*report);
  ADD_FAILURE() << report.error().Text();
  return {};
}

bool TestDaemon::Eventually(const std::function<bool()>& true_of) const { return BecomesTrue(true_of); }

}  // namespace tessera::server
