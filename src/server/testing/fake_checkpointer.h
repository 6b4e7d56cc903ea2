// A checkpointer without a driver: programs are what the test says.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/checkpoint/checkpointer.h"

namespace tessera::server {

// Walks programs through their states as the driver does, and answers from the loop. On its thread. It may be destroyed
// while answers are on their way; these are dropped.
class FakeCheckpointer final : public Checkpointer {
 public:
  using Operation = wire::CheckpointOperation;

  explicit FakeCheckpointer(EventLoop& loop) : loop_(loop) {}

  // The programs that use CUDA, and their states.
  std::map<pid_t, cuda::CUprocessState> states;
  // The next calls of this kind fail so, once each, and change nothing.
  std::multimap<Operation, Error> failures;
  // Whether calls are answered at once. If not, AnswerNext answers the first of those that wait.
  bool answers = true;
  // What it was asked, in order; the pairs of the last Restore; and how often it was told to prepare.
  std::vector<std::pair<Operation, pid_t>> asked;
  std::vector<wire::GpuPair> pairs;
  int prepared = 0;
  // Whether it is ready for requests.
  bool ready = true;

  void Prepare() override { ++prepared; }
  bool Prepared() const override { return ready; }
  void State(pid_t pid, StateDone done) override {
    Ask(Operation::kState, pid, [this, pid, done = std::move(done)](Result<void> result) {
      done(result ? Result<cuda::CUprocessState>(states.at(pid)) : std::unexpected(result.error()));
    });
  }
  void Lock(pid_t pid, Nanos, Done done) override { Ask(Operation::kLock, pid, std::move(done)); }
  void Checkpoint(pid_t pid, Done done) override { Ask(Operation::kCheckpoint, pid, std::move(done)); }
  void Restore(pid_t pid, const std::vector<wire::GpuPair>& to, Done done) override {
    pairs = to;
    Ask(Operation::kRestore, pid, std::move(done));
  }
  void Unlock(pid_t pid, Done done) override { Ask(Operation::kUnlock, pid, std::move(done)); }

  bool AnswerNext() {
    if (waiting_.empty()) return false;
    const auto call = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    call();
    return true;
  }

 private:
  void Ask(Operation operation, pid_t pid, Done done) {
    asked.emplace_back(operation, pid);
    waiting_.emplace_back([this, operation, pid, done = std::move(done)] { done(Do(operation, pid)); });
    if (answers) {
      loop_.Post([this, alive = std::weak_ptr<bool>(alive_)] {
        if (!alive.expired()) AnswerNext();
      });
    }
  }

  Result<void> Do(Operation operation, pid_t pid) {
    if (const auto failure = failures.find(operation); failure != failures.end()) {
      const Error error = failure->second;
      failures.erase(failure);
      return std::unexpected(error);
    }
    const auto state = states.find(pid);
    if (state == states.end()) return Fail(ESRCH, "the driver knows no program " + std::to_string(pid));
    if (operation == Operation::kState) return {};
    struct Step {
      cuda::CUprocessState from, to;
    };
    static const std::map<Operation, Step> kSteps = {
        {Operation::kLock, {cuda::CU_PROCESS_STATE_RUNNING, cuda::CU_PROCESS_STATE_LOCKED}},
        {Operation::kCheckpoint, {cuda::CU_PROCESS_STATE_LOCKED, cuda::CU_PROCESS_STATE_CHECKPOINTED}},
        {Operation::kRestore, {cuda::CU_PROCESS_STATE_CHECKPOINTED, cuda::CU_PROCESS_STATE_LOCKED}},
        {Operation::kUnlock, {cuda::CU_PROCESS_STATE_LOCKED, cuda::CU_PROCESS_STATE_RUNNING}},
    };
    const Step& step = kSteps.at(operation);
    if (state->second != step.from) return Fail(EINVAL, "the program is in another state");
    state->second = step.to;
    return {};
  }

  EventLoop& loop_;
  std::vector<std::function<void()>> waiting_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tessera::server
