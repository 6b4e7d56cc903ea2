#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cuda/cuda_abi.h"
#include "soft/exec/dispatcher.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

class Context;
struct Capture;
struct Node;

// Guards what decides where submitted work goes: the tails of streams, the recordings of events, captures. One for the
// process, since events tie contexts together. Never held while waiting or while a program's code runs; the
// dispatchers' lock is taken inside it.
inline constinit Mutex submission_mutex;

// A queue of work. Handles of streams are found with FindStream, which knows the default streams too.
struct Stream {
  Context& context;
  const unsigned flags;
  const int priority;
  const std::uint64_t id;               // unique in the process
  const bool legacy;                    // the context's legacy default stream
  const std::uint32_t multiprocessors;  // of the green context in which it was made; 0: it was made in none

  // Synchronizes implicitly with the legacy default stream.
  bool blocking() const { return !legacy && !(flags & cuda::CU_STREAM_NON_BLOCKING); }

  OpRef last TESSERA_GUARDED_BY(submission_mutex);                        // what was submitted last
  std::deque<OpRef> window TESSERA_GUARDED_BY(submission_mutex);          // the last kernels, to bound how many wait
  std::shared_ptr<Capture> capture TESSERA_GUARDED_BY(submission_mutex);  // null unless the stream is captured
  std::vector<Node*> frontier TESSERA_GUARDED_BY(submission_mutex);       // what the next captured node depends on
};

using Streams = Handles<Stream, cuda::CUstream>;

}  // namespace tessera::soft
