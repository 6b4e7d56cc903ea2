#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "guard/supervisor/supervisor.h"
#include "guard/testing/fake_driver.h"
#include "guard/testing/tenant.h"

namespace tessera::guard {

// A supervisor with a fake driver behind it, and a ledger with one limit for all. Any thread.
class Stage {
 public:
  // `processes`: as SupervisorHooks has it.
  explicit Stage(std::uint64_t limit, SupervisorOptions options = {},
                 std::shared_ptr<std::atomic<std::int64_t>> processes = {});
  ~Stage() { supervisor.reset(); }

  // Serves a tenant and lets it go on.
  std::uint64_t Serve(Tenant& tenant);
  // The same, and waits for its end: what the body returned.
  int Run(Tenant& tenant);

  void WaitUntilEnded(std::uint64_t listener);
  std::uint64_t Held(pid_t pid) const;
  std::uint64_t Held() const;      // by all
  std::uint64_t MostHeld() const;  // at any time
  std::uint64_t MostHeldOn(std::uint32_t device) const;
  std::vector<channel::ObjectEvent> Events(pid_t pid) const;
  std::vector<std::string> Refused() const;
  std::vector<std::string> Unknown() const;

  // Called in `charge`, on the supervisor's thread, before it is decided.
  std::function<void()> on_charge;

  std::unique_ptr<Supervisor> supervisor;
  FakeDriver* driver = nullptr;  // the supervisor's

 private:
  bool Charge(pid_t pid, std::uint32_t device, std::uint64_t bytes);
  void GiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes);

  const std::uint64_t limit_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<pid_t, std::uint64_t> held_ TESSERA_GUARDED_BY(mutex_);
  // By device: held now, and the most.
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> on_device_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t most_ TESSERA_GUARDED_BY(mutex_) = 0;
  std::map<pid_t, std::vector<channel::ObjectEvent>> events_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::string> refused_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::string> unknown_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> ended_ TESSERA_GUARDED_BY(mutex_);
};

// Fixture of tests with programs behind a real filter. Skips them where the kernel or a container permits no seccomp
// user notification.
class GatedProgramTest : public testing::Test {
 protected:
  void SetUp() override;

  // Runs a program with this body (see Tenant) to its end, and expects that it returns 0. `stage` is there afterwards.
  void RunTenant(const std::function<int()>& body, std::uint64_t limit = 10 * kMiB, SupervisorOptions options = {});

  std::unique_ptr<Stage> stage;
};

}  // namespace tessera::guard
