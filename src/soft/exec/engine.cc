#include "soft/exec/engine.h"

#include <map>

#include "soft/device/address_map.h"
#include "soft/device/context.h"
#include "soft/device/heap.h"
#include "soft/device/memory_steps.h"
#include "soft/exec/capture.h"
#include "soft/exec/event.h"
#include "soft/exec/graph_exec.h"
#include "soft/exec/graph_memory.h"
#include "soft/exec/kernel_run.h"
#include "soft/exec/memory_wait.h"
#include "soft/module/library.h"
#include "soft/module/module.h"
#include "soft/shared/mps_servers.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr std::size_t kQueueDepth = 1024;

std::shared_ptr<Stream> MakeStream(Context& context, unsigned flags, int priority, bool legacy) {
  static std::atomic<std::uint64_t> next_id = 1;
  return std::make_shared<Stream>(context, flags, priority, next_id++, legacy, legacy ? 0 : CurrentMultiprocessors());
}

void DropEnded(std::deque<OpRef>& window) {
  while (!window.empty() && Dispatcher::Done(window.front())) window.pop_front();
}

}  // namespace

Engine::Engine(Context& context)
    : context_(context),
      arbiter_(context.device().state(), context.device().shared_index()),
      legacy_(MakeStream(context, CU_STREAM_DEFAULT, 0, /*legacy=*/true)),
      heap_(std::make_shared<Heap>(context.device(), &context)),
      dispatcher_({.on_error = [this](CUresult error) { context_.SetSticky(error); },
                   .on_compute_idle = [this] { arbiter_.Release(); }}) {}

Engine::~Engine() {
  Synchronize();
  dispatcher_.Stop();
  const auto here = [this](const auto& object) { return &object.context == &context_; };
  {
    const MutexLock lock(submission_mutex);
    for (const auto& stream : streams_) AbandonCapture(*stream);
    for (const auto& stream : Streams::Get().RemoveIf(here)) AbandonCapture(*stream);
  }
  Events::Get().RemoveIf(here);
  Functions::Get().RemoveIf([this](const Function& function) { return &function.module.context() == &context_; });
  Modules::Get().RemoveIf([this](const Module& module) { return &module.context() == &context_; });
  for (const auto& library : Libraries::Get().All()) library->Forget(context_);
  DropGraphMemoryOf(*heap_);
}

std::shared_ptr<Stream> Engine::PerThread() {
  const MutexLock lock(submission_mutex);
  // A thread that gets the identity of one that has ended gets its stream too, which is harmless.
  std::shared_ptr<Stream>& stream = per_thread_[std::this_thread::get_id()];
  if (!stream) {
    stream = MakeStream(context_, CU_STREAM_DEFAULT, 0, /*legacy=*/false);
    streams_.push_back(stream);
  }
  return stream;
}

std::shared_ptr<Stream> Engine::AddStream(unsigned flags, int priority) {
  // All streams of a green context are (H100, 580.159.04), whatever was asked for.
  if (CurrentMultiprocessors() != 0) flags |= CU_STREAM_NON_BLOCKING;
  auto stream = MakeStream(context_, flags, priority, /*legacy=*/false);
  const MutexLock lock(submission_mutex);
  streams_.push_back(stream);
  return stream;
}

void Engine::RemoveStream(const std::shared_ptr<Stream>& stream) {
  const MutexLock lock(submission_mutex);
  AbandonCapture(*stream);
  if (std::erase(streams_, stream) == 0) return;
  for (auto& tails : retired_) std::erase_if(tails, Dispatcher::Done);
  if (!Dispatcher::Done(stream->last)) retired_[stream->blocking()].push_back(stream->last);
}

void Engine::WaitForRoom(Stream& stream) {
  for (;;) {
    OpRef oldest;
    {
      const MutexLock lock(submission_mutex);
      DropEnded(stream.window);
      if (stream.window.size() < kQueueDepth) return;
      oldest = stream.window.front();
    }
    Dispatcher::Wait(oldest);
  }
}

std::vector<OpRef> Engine::Tails(const Stream& stream) {
  std::vector<OpRef> tails = {stream.last};
  if (stream.legacy) {
    for (const auto& other : streams_) {
      if (other->blocking()) tails.push_back(other->last);
    }
    tails.insert(tails.end(), retired_[true].begin(), retired_[true].end());
  } else if (stream.blocking()) {
    tails.push_back(legacy_->last);
  }
  return tails;
}

OpRef Engine::Append(Stream& stream, const Work& work) {
  stream.last = Submit(work, Tails(stream));
  if (std::holds_alternative<KernelWork>(work)) {
    DropEnded(stream.window);
    stream.window.push_back(stream.last);
  }
  return stream.last;
}

OpRef Engine::Append(Stream& stream, Task task) {
  return stream.last = dispatcher_.Submit(UntilEnded(std::move(task)), Tails(stream));
}

OpRef Engine::Append(Stream& stream, GraphExec& exec) {
  std::vector<OpRef> after = Tails(stream);
  after.push_back(exec.last);
  return stream.last = exec.last = SubmitGraph(*exec.graph, dispatcher_.Submit({}, after));
}

OpRef Engine::SubmitGraph(const Graph& graph, const OpRef& begin) {
  std::map<const Node*, OpRef> ops;
  std::vector<OpRef> ends = {begin};
  // Instantiate made sure that there is an order.
  const std::vector<Node*> order = graph.Order().value_or(std::vector<Node*>());
  for (const Node* node : order) {
    std::vector<OpRef> after = {begin};
    for (const Node* dependency : node->dependencies) after.push_back(ops[dependency]);
    const OpRef op = node->enabled ? Submit(node->work, std::move(after)) : dispatcher_.Submit({}, after);
    ops[node] = op;
    if (node->dependents.empty()) ends.push_back(op);
  }
  if (graph.user_objects.empty()) return dispatcher_.Submit({}, ends);
  // Not run: it ends with the operation, and the references with it.
  return dispatcher_.Submit({.body = [references = graph.user_objects] { return CUDA_SUCCESS; }}, ends);
}

OpRef Engine::Submit(const Work& work, std::vector<OpRef> after) {
  if (const auto* wait = std::get_if<EventWaitWork>(&work)) after.push_back(wait->event->recording);
  if (const auto* graph = std::get_if<GraphWork>(&work)) {
    return SubmitGraph(*graph->graph, dispatcher_.Submit({}, after));
  }
  OpRef op = dispatcher_.Submit(UntilEnded(TaskOf(work)), after);
  if (const auto* record = std::get_if<EventRecordWork>(&work)) Record(*record->event, op);
  if (const auto* alloc = std::get_if<AllocWork>(&work)) alloc->memory->SetAllocated(true);
  if (const auto* free = std::get_if<FreeWork>(&work)) free->memory->SetAllocated(false);
  return op;
}

void Engine::Record(Event& event, OpRef op) {
  event.recording = std::move(op);
  event.captured = false;
}

void Engine::RecordAll(Event& event) {
  std::vector<OpRef> tails = {legacy_->last};
  for (const auto& stream : streams_) tails.push_back(stream->last);
  for (const auto& retired : retired_) tails.insert(tails.end(), retired.begin(), retired.end());
  Record(event, dispatcher_.Submit({}, tails));
}

MemorySteps Engine::StepsOfCopies() {
  return {context_.device(), Frozen::kAll, [this] { return Aborting(); }};
}

bool Engine::Aborting() const {
  return dispatcher_.aborting() || EndedByMps(context_.device().state()) != CUDA_SUCCESS;
}

Task Engine::UntilEnded(Task task) {
  // A program's own function runs whatever becomes of the GPU's work.
  if (!task.body || task.lane == Lane::kHost || !IsMpsClient(context_.device().state())) return task;
  task.body = [this, body = std::move(task.body)] {
    const CUresult result = body();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    const CUresult ended = EndedByMps(context_.device().state());
    return ended != CUDA_SUCCESS ? ended : result;
  };
  return task;
}

Task Engine::TaskOf(const Work& work) {
  if (const auto* kernel = std::get_if<KernelWork>(&work)) {
    return {Lane::kCompute, [this, kernel = *kernel] {
              arbiter_.UseDevice(context_.device().shared_index());
              return RunKernel(kernel, context_, arbiter_, next_grid_id_++, [this] { return Aborting(); });
            }};
  }
  if (const auto* copy = std::get_if<CopyWork>(&work)) {
    return {Lane::kCopy, [this, copy = *copy] {
              MemorySteps steps = StepsOfCopies();
              return Execute(copy.copy, steps);
            }};
  }
  if (const auto* memset = std::get_if<MemsetWork>(&work)) {
    return {Lane::kCopy, [this, memset = memset->memset] {
              MemorySteps steps = StepsOfCopies();
              return Execute(memset, steps);
            }};
  }
  if (const auto* host = std::get_if<HostWork>(&work)) {
    return {Lane::kHost, [host = *host] {
              host.function(host.data);
              return CUDA_SUCCESS;
            }};
  }
  if (const auto* batch = std::get_if<BatchWork>(&work)) {
    // A GPU writes a word between two kernels in no time, and looks at one; changes of threads would make a tenth of a
    // millisecond of it.
    return {.lane = Lane::kMemory,
            .body =
                [this, operations = MemoryOperations(batch->operations)]() mutable {
                  MemorySteps steps = StepsOfCopies();
                  return operations(steps);
                },
            .brief = true};
  }
  return {};
}

}  // namespace tessera::soft
