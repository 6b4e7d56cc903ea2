#pragma once

#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/exec/dispatcher.h"
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

  // Guarded by SubmissionMutex.
  OpRef recording;                 // null if never recorded
  std::weak_ptr<Capture> capture;  // of a record in a captured stream
  bool captured = false;           // the last record was captured, even if the capture has ended
  std::vector<Node*> frontier;     // where in the capture
};

using Events = Handles<Event, cuda::CUevent>;

}  // namespace tessera::soft
