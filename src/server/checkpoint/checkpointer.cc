#include "server/checkpoint/checkpointer.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "server/checkpoint/checkpoint_child.h"
#include "server/checkpoint/checkpoint_errors.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

using wire::CheckpointAnswer;
using wire::CheckpointAnswerType;
using wire::CheckpointOperation;
using wire::CheckpointRequest;

class ChildCheckpointer final : public Checkpointer {
 public:
  ChildCheckpointer(EventLoop& loop, StartCheckpointProcess start, const CheckpointLimits& limits)
      : loop_(loop),
        start_(std::move(start)),
        limits_(limits),
        lost_(loop,
              [this] {
                if (useless_) Lost();
              }),
        timer_(loop, [this] { OnTime(); }) {}

  void Prepare() override {
    if (!child_ && !Start()) return;
    if (ready_ && !asked_) Until(limits_.idle);
  }
  bool Prepared() const override { return ready_ || !child_; }
  void State(pid_t pid, StateDone done) override {
    Add({.request = {.operation = CheckpointOperation::kState, .pid = pid}, .done = std::move(done)});
  }
  void Lock(pid_t pid, Nanos timeout, Done done) override {
    // 0 would mean that the driver waits for ever.
    const auto ms = static_cast<std::uint32_t>(std::clamp<Nanos>(timeout / kMillisecond, 1, UINT32_MAX));
    Add({.request = {.operation = CheckpointOperation::kLock, .pid = pid, .timeout_ms = ms},
         .done = WithoutState(std::move(done))});
  }
  void Checkpoint(pid_t pid, Done done) override {
    Add({.request = {.operation = CheckpointOperation::kCheckpoint, .pid = pid},
         .done = WithoutState(std::move(done))});
  }
  void Restore(pid_t pid, const std::vector<wire::GpuPair>& pairs, Done done) override {
    Job job = {.request = {.operation = CheckpointOperation::kRestore, .pid = pid},
               .done = WithoutState(std::move(done))};
    if (pairs.size() > wire::kMostGpuPairs)
      return Answer(job, Fail(E2BIG, CannotDo(job.request) + ": it is for at most 16 GPUs in a machine"));
    std::ranges::copy(pairs, job.request.pairs);
    job.request.pair_count = static_cast<std::uint32_t>(pairs.size());
    Add(std::move(job));
  }
  void Unlock(pid_t pid, Done done) override {
    Add({.request = {.operation = CheckpointOperation::kUnlock, .pid = pid}, .done = WithoutState(std::move(done))});
  }

 private:
  struct Job {
    CheckpointRequest request;
    StateDone done;
  };

  static StateDone WithoutState(Done done) {
    return [done = std::move(done)](Result<cuda::CUprocessState> state) {
      done(state ? Result<void>() : std::unexpected(state.error()));
    };
  }

  void Add(Job job) {
    jobs_.push_back(std::move(job));
    if (child_ || Start()) Next();
  }

  // False: it failed, and so did all that waits.
  bool Start() {
    auto process = start_();
    if (!process) {
      FailAll(process.error());
      return false;
    }
    child_ = std::make_unique<CheckpointChild>(loop_, std::move(*process),
                                               [this](const CheckpointAnswer* answer) { OnAnswer(answer); });
    if (const auto watched = child_->Watch(); !watched) {
      DropChild();
      FailAll(watched.error());
      return false;
    }
    Until(limits_.start);
    return true;
  }

  // Asks what is next, if nothing is asked now.
  void Next() {
    if (!ready_ || asked_ || useless_) return;
    if (jobs_.empty()) return Until(limits_.idle);
    asked_ = true;
    Until(LimitOf(jobs_.front().request));
    if (!child_->Send(jobs_.front().request)) GiveUp();
  }

  Nanos LimitOf(const CheckpointRequest& request) const {
    switch (request.operation) {
      case CheckpointOperation::kLock:
        return request.timeout_ms * kMillisecond + limits_.lock;
      case CheckpointOperation::kCheckpoint:
      case CheckpointOperation::kRestore:
        return limits_.copy;
      default:
        return limits_.call;
    }
  }

  // Called by the child, which must not be destroyed here.
  void OnAnswer(const CheckpointAnswer* answer) {
    if (answer != nullptr && !ready_ && answer->type == CheckpointAnswerType::kReady) {
      ready_ = true;
      return Next();
    }
    if (answer != nullptr && !ready_ && answer->type == CheckpointAnswerType::kFailed) {
      failure_ = Error{.code = answer->error, .message = answer->text, .hint = {}};
    } else if (answer != nullptr && asked_ && answer->type == CheckpointAnswerType::kDone &&
               answer->operation == jobs_.front().request.operation && answer->pid == jobs_.front().request.pid) {
      return OnDone(*answer);
    }
    GiveUp();
  }

  // As soon as the child may be destroyed.
  void GiveUp() {
    useless_ = true;
    lost_.MarkDue();
  }

  void OnDone(const CheckpointAnswer& answer) {
    const Job job = TakeFirst();
    log::Debug("checkpoint call {} of program {}: result {}, state {}, {:.3f} s", static_cast<int>(answer.operation),
               answer.pid, answer.result, answer.state, static_cast<double>(answer.took_ns) / kSecond);
    auto meaning = MeaningOf(job.request, answer);
    Answer(job, meaning ? Result<cuda::CUprocessState>(static_cast<cuda::CUprocessState>(answer.state))
                        : std::unexpected(std::move(meaning.error())));
    Next();
  }

  // The child has ended, or is of no use. What it was asked fails, and all that waits if it never was ready: the next
  // one would fare alike.
  void Lost() {
    const bool was_ready = ready_;
    child_->Kill();
    DropChild();
    const Error ended = {.code = EPIPE, .message = "tessera-checkpoint has ended", .hint = "the log may say why"};
    const Error why = std::exchange(failure_, {}).value_or(ended);
    if (!was_ready) return FailAll(why);
    if (std::exchange(asked_, false)) FailFirst(why);
    if (!jobs_.empty() && Start()) Next();
  }

  void OnTime() {
    if (!child_) return;
    if (MonotonicNow() < due_) return timer_.Arm(due_);
    if (ready_ && !asked_) return DropChild();  // it has nothing to do
    failure_ = Error{.code = ETIMEDOUT, .message = "the driver does not answer", .hint = "see whether the GPU works"};
    Lost();
  }

  void DropChild() {
    child_.reset();
    ready_ = useless_ = false;
  }

  void Until(Nanos delay) {
    due_ = MonotonicNow() + delay;
    timer_.Arm(due_);
  }

  Job TakeFirst() {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    asked_ = false;
    return job;
  }
  void FailFirst(const Error& why) {
    const Job job = TakeFirst();
    Answer(job, Fail(why.code, CannotDo(job.request) + ": " + why.message, why.hint));
  }
  void FailAll(const Error& why) {
    while (!jobs_.empty()) FailFirst(why);
  }

  // Later, unless the object has ended by then.
  void Answer(const Job& job, Result<cuda::CUprocessState> result) {
    loop_.Post([alive = std::weak_ptr<bool>(alive_), done = job.done, result = std::move(result)] {
      if (!alive.expired()) done(result);
    });
  }

  EventLoop& loop_;
  const StartCheckpointProcess start_;
  const CheckpointLimits limits_;
  std::deque<Job> jobs_;
  bool asked_ = false;  // the first of them, of the child
  std::unique_ptr<CheckpointChild> child_;
  bool ready_ = false;            // it said so
  bool useless_ = false;          // it has ended, or says what it must not
  std::optional<Error> failure_;  // why it is of no use, once that is known
  EventLoop::Deferred lost_;
  EventLoop::Timer timer_;
  Nanos due_ = kNever;  // when the child must have answered; or is ended, if it has nothing to do
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

std::unique_ptr<Checkpointer> MakeCheckpointer(EventLoop& loop, bool soft) {
  return MakeCheckpointer(loop, [soft] { return SpawnCheckpointProcess(soft); }, {});
}

std::unique_ptr<Checkpointer> MakeCheckpointer(EventLoop& loop, StartCheckpointProcess start,
                                               const CheckpointLimits& limits) {
  return std::make_unique<ChildCheckpointer>(loop, std::move(start), limits);
}

}  // namespace tessera::server
