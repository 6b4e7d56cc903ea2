#include "soft/checkpoint/checkpoint_request.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <span>

#include "soft/shared/shared_layout.h"

namespace tessera::soft {
namespace {

using namespace cuda;

// How often who waits for an answer looks whether the other process still lives.
constexpr Nanos kLookForDeath = 20 * kMillisecond;

// Until `word` is not `seen` any more, for `most` at the longest (0: for ever). May return early.
void AwaitWord(std::atomic<std::uint32_t>& word, std::uint32_t seen, Nanos most) {
  const timespec time = {most / kSecond, most % kSecond};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, most == 0 ? nullptr : &time, nullptr, 0);
}

void WakeAll(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

// A process that answers; null: there is none of this number. It may end at any time.
struct Answerer {
  SharedSlot* slot = nullptr;
  ProcessId process;

  static Answerer Find(SharedLayout& layout, pid_t pid) {
    const RobustLock lock(layout.mutex);
    for (SharedSlot& slot : std::span(layout.slots, layout.slot_count)) {
      if (pid <= 0 || slot.process.pid == 0 || slot.checkpoint.thread == 0 || slot.process.Here() != pid) continue;
      if (slot.process.Alive(layout.pid_namespace)) return {&slot, slot.process};
    }
    return {};
  }

  // All that was asked for was answered. False: it has ended.
  bool AwaitAnswers(const SharedLayout& layout) const {
    SharedCheckpoint& words = slot->checkpoint;
    for (;;) {
      const std::uint32_t answered = words.answered;
      if (answered == words.asked) return true;
      if (slot->process != process || !process.Alive(layout.pid_namespace)) return false;
      AwaitWord(words.answered, answered, kLookForDeath);
    }
  }
};

}  // namespace

CUresult AskForStep(SharedState& state, pid_t pid, const CheckpointRequest& request) {
  SharedLayout& layout = state.layout();
  const Answerer answerer = Answerer::Find(layout, pid);
  if (answerer.slot == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SharedCheckpoint& words = answerer.slot->checkpoint;
  const RobustLock lock(words.asking);
  // One that was killed may have asked before.
  if (!answerer.AwaitAnswers(layout)) return CUDA_ERROR_INVALID_VALUE;
  words.asker = ProcessId::Self();
  words.asked_process = answerer.process;
  words.step = static_cast<std::uint32_t>(request.step);
  words.timeout_ms = request.timeout_ms;
  std::ranges::copy(request.to, words.to);
  ++words.asked;
  WakeAll(words.asked);
  if (!answerer.AwaitAnswers(layout)) return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(words.result.load());
}

CUresult CheckpointStateOf(SharedState& state, pid_t pid, CUprocessState* answer) {
  const Answerer answerer = Answerer::Find(state.layout(), pid);
  if (answerer.slot == nullptr || answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *answer = static_cast<CUprocessState>(answerer.slot->checkpoint.state.load());
  return CUDA_SUCCESS;
}

CUresult CheckpointThreadOf(SharedState& state, pid_t pid, int* thread) {
  const Answerer answerer = Answerer::Find(state.layout(), pid);
  if (answerer.slot == nullptr || thread == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *thread = answerer.slot->checkpoint.thread;
  return CUDA_SUCCESS;
}

CheckpointInbox::CheckpointInbox(SharedState& state) : shared_(state) {
  SharedCheckpoint& words = shared_.slot().checkpoint;
  // What the slot's last process was asked for is nobody's any more.
  asked_ = words.asked;
  Answer(CUDA_ERROR_INVALID_VALUE);
  SetState(CU_PROCESS_STATE_RUNNING);
  words.thread = static_cast<std::int32_t>(syscall(SYS_gettid));
}

std::optional<CheckpointRequest> CheckpointInbox::Await(Nanos most) {
  SharedCheckpoint& words = shared_.slot().checkpoint;
  if (words.asked == asked_) AwaitWord(words.asked, asked_, most);
  if (words.asked == asked_) return std::nullopt;
  asked_ = words.asked;
  if (words.asked_process != shared_.slot().process) {
    Answer(CUDA_ERROR_INVALID_VALUE);
    return std::nullopt;
  }
  CheckpointRequest request = {.step = static_cast<CheckpointStep>(words.step), .timeout_ms = words.timeout_ms};
  std::ranges::copy(words.to, request.to.begin());
  return request;
}

bool CheckpointInbox::AskerLives() const {
  return shared_.slot().checkpoint.asker.Alive(shared_.layout().pid_namespace);
}

void CheckpointInbox::SetState(CUprocessState now) { shared_.slot().checkpoint.state = now; }

CUprocessState CheckpointInbox::state() const {
  return static_cast<CUprocessState>(shared_.slot().checkpoint.state.load());
}

void CheckpointInbox::Answer(CUresult result) {
  SharedCheckpoint& words = shared_.slot().checkpoint;
  words.result = result;
  words.answered = asked_;
  WakeAll(words.answered);
}

}  // namespace tessera::soft
