#include "guard/testing/stage.h"

#include <algorithm>

namespace tessera::guard {

Stage::Stage(std::uint64_t limit, SupervisorOptions options, std::shared_ptr<std::atomic<std::int64_t>> processes)
    : limit_(limit) {
  SupervisorHooks hooks;
  hooks.processes = std::move(processes);
  hooks.charge = [this](pid_t pid, std::uint32_t device, std::uint64_t bytes) { return Charge(pid, device, bytes); };
  hooks.give_back = [this](pid_t pid, std::uint32_t device, std::uint64_t bytes) { GiveBack(pid, device, bytes); };
  hooks.object = [this](pid_t pid, const channel::ObjectEvent& event) {
    const MutexLock lock(mutex_);
    events_[pid].push_back(event);
  };
  hooks.ended = [this](std::uint64_t listener) {
    const MutexLock lock(mutex_);
    ended_.push_back(listener);
    changed_.NotifyAll();
  };
  hooks.refused = [this](pid_t, std::string what) {
    const MutexLock lock(mutex_);
    refused_.push_back(std::move(what));
  };
  hooks.unknown = [this](pid_t, std::string what) {
    const MutexLock lock(mutex_);
    unknown_.push_back(std::move(what));
  };
  auto fake = std::make_unique<FakeDriver>();
  driver = fake.get();
  auto started = Supervisor::Start(std::move(hooks), options, std::move(*TreeRecord::Create({})), std::move(fake));
  if (started) supervisor = std::move(*started);
}

std::uint64_t Stage::Serve(Tenant& tenant) {
  const std::uint64_t id = supervisor->Add(tenant.TakeListener());
  tenant.Go();
  return id;
}

int Stage::Run(Tenant& tenant) {
  const std::uint64_t id = Serve(tenant);
  const int line = tenant.Wait();
  WaitUntilEnded(id);
  return line;
}

void Stage::WaitUntilEnded(std::uint64_t listener) {
  const MutexLock lock(mutex_);
  while (std::find(ended_.begin(), ended_.end(), listener) == ended_.end()) changed_.Wait(mutex_);
}

bool Stage::Charge(pid_t pid, std::uint32_t device, std::uint64_t bytes) {
  if (on_charge) on_charge();
  const MutexLock lock(mutex_);
  std::uint64_t sum = bytes;
  for (const auto& [process, held] : held_) sum += held;
  if (sum > limit_) return false;
  held_[pid] += bytes;
  auto& [now, most] = on_device_[device];
  now += bytes;
  most = std::max(most, now);
  most_ = std::max(most_, sum);
  return true;
}

void Stage::GiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  std::uint64_t& on_device = on_device_[device].first;
  if (held_[pid] < bytes || on_device < bytes) {
    ADD_FAILURE() << "process " << pid << " gives back " << bytes << " of " << held_[pid] << ", device " << device
                  << " of " << on_device;
    return;
  }
  held_[pid] -= bytes;
  on_device -= bytes;
}

std::uint64_t Stage::Held(pid_t pid) const {
  const MutexLock lock(mutex_);
  const auto found = held_.find(pid);
  return found == held_.end() ? 0 : found->second;
}

std::uint64_t Stage::Held() const {
  const MutexLock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [pid, held] : held_) sum += held;
  return sum;
}

std::uint64_t Stage::MostHeldOn(std::uint32_t device) const {
  const MutexLock lock(mutex_);
  const auto found = on_device_.find(device);
  return found == on_device_.end() ? 0 : found->second.second;
}

std::uint64_t Stage::MostHeld() const {
  const MutexLock lock(mutex_);
  return most_;
}

std::vector<channel::ObjectEvent> Stage::Events(pid_t pid) const {
  const MutexLock lock(mutex_);
  const auto found = events_.find(pid);
  return found == events_.end() ? std::vector<channel::ObjectEvent>() : found->second;
}

std::vector<std::string> Stage::Refused() const {
  const MutexLock lock(mutex_);
  return refused_;
}

std::vector<std::string> Stage::Unknown() const {
  const MutexLock lock(mutex_);
  return unknown_;
}

void GatedProgramTest::SetUp() {
  if (!Tenant([] { return 0; }).Permitted()) GTEST_SKIP() << "seccomp user notification is not permitted here";
}

void GatedProgramTest::RunTenant(const std::function<int()>& body, std::uint64_t limit, SupervisorOptions options) {
  Tenant tenant(body);  // forked before the supervisor has a thread
  stage = std::make_unique<Stage>(limit, options);
  EXPECT_EQ(stage->Run(tenant), 0);
}

}  // namespace tessera::guard
