// The streams of a context and the threads that execute them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/exec/dispatcher.h"
#include "soft/exec/stream.h"
#include "soft/exec/work.h"
#include "soft/shared/arbiter.h"

namespace tessera::soft {

class Context;
class Heap;
class MemorySteps;
struct Event;
struct GraphExec;

class Engine {
 public:
  explicit Engine(Context& context);
  // Waits for the work. Handles of the context's streams, events and modules become invalid.
  ~Engine();
  Engine(const Engine&) = delete;

  // Blocks until all that was submitted before has ended.
  void Synchronize() { dispatcher_.Synchronize(); }

  // All that was submitted has ended.
  bool Idle() { return dispatcher_.Idle(); }

  // Never null: the legacy default stream, and the calling thread's own one.
  const std::shared_ptr<Stream>& legacy() const { return legacy_; }
  std::shared_ptr<Stream> PerThread();
  // Non-blocking where the calling thread works in a green context.
  std::shared_ptr<Stream> AddStream(unsigned flags, int priority);
  // Its work goes on.
  void RemoveStream(const std::shared_ptr<Stream>& stream);

  // Blocks while `stream` has as many kernels queued as a channel of a real GPU takes (1024, as launches were seen to
  // block there).
  void WaitForRoom(Stream& stream);

  // Memory of code and of graphs, which may outlast the engine by as long as a graph does.
  const std::shared_ptr<Heap>& heap() const { return heap_; }

  // Appends to `stream`, in the implicit order between the legacy default stream and blocking streams; returns the
  // operation that ends with the work.
  OpRef Append(Stream& stream, const Work& work) TESSERA_REQUIRES(submission_mutex);
  OpRef Append(Stream& stream, Task task) TESSERA_REQUIRES(submission_mutex);
  OpRef Append(Stream& stream, GraphExec& exec) TESSERA_REQUIRES(submission_mutex);
  // Records what all streams were given so far.
  void RecordAll(Event& event) TESSERA_REQUIRES(submission_mutex);

 private:
  // The operations that the next one of `stream` waits for.
  std::vector<OpRef> Tails(const Stream& stream) TESSERA_REQUIRES(submission_mutex);
  OpRef Submit(const Work& work, std::vector<OpRef> after) TESSERA_REQUIRES(submission_mutex);
  static void Record(Event& event, OpRef op) TESSERA_REQUIRES(submission_mutex);
  // Submits the nodes of a graph behind `begin`; the result ends with the last of them.
  OpRef SubmitGraph(const Graph& graph, const OpRef& begin) TESSERA_REQUIRES(submission_mutex);
  // The task that does `work`; an empty one for work that is about order only.
  Task TaskOf(const Work& work);
  // For a client of MPS: the task fails once the client has been ended. Others: the task as it is.
  Task UntilEnded(Task task);
  // Long work should return early: a fault, the engine's end, the end as a client of MPS.
  bool Aborting() const;
  // Of copies and what else stands still only where all does.
  MemorySteps StepsOfCopies();

  Context& context_;
  Arbiter arbiter_;                 // used by the compute thread alone
  std::uint64_t next_grid_id_ = 1;  // likewise
  const std::shared_ptr<Stream> legacy_;
  std::shared_ptr<Heap> heap_;

  // All but the legacy default stream.
  std::vector<std::shared_ptr<Stream>> streams_ TESSERA_GUARDED_BY(submission_mutex);
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread_ TESSERA_GUARDED_BY(submission_mutex);
  // Tails of streams that were removed; [1]: of blocking ones.
  std::vector<OpRef> retired_[2] TESSERA_GUARDED_BY(submission_mutex);

  Dispatcher dispatcher_;  // last: its threads use all of the above
};

}  // namespace tessera::soft
