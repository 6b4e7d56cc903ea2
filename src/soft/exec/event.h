#pragma once

#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/exec/dispatcher.h"
#include "soft/exec/stream.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

class Context;
struct Capture;
struct Node;

// A point in a stream. What it was recorded as last counts: an operation, or a place in a capture.
struct Event {
  Context& context;
  const unsigned flags;

  bool timed() const { return !(flags & cuda::CU_EVENT_DISABLE_TIMING); }

  OpRef recording TESSERA_GUARDED_BY(submission_mutex);                 // null if never recorded
  std::weak_ptr<Capture> capture TESSERA_GUARDED_BY(submission_mutex);  // of a record in a captured stream
  // The last record was captured, even if the capture has ended.
  bool captured TESSERA_GUARDED_BY(submission_mutex) = false;
  std::vector<Node*> frontier TESSERA_GUARDED_BY(submission_mutex);  // where in the capture
};

using Events = Handles<Event, cuda::CUevent>;

}  // namespace tessera::soft
