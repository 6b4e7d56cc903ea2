#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/device/api_gate.h"
#include "soft/device/device.h"

namespace tessera::soft {

struct GreenContext;  // green_context.h
class Engine;         // engine.h: the streams of a context and the threads that execute them
class Heap;           // heap.h: device memory in granules of 2 MiB

// A CUDA context. The object lives as long as the process, so that a stale handle finds out that it is one; what it
// holds (engine, memory) lives from Open to Close. A primary context may be opened again.
class Context {
 public:
  explicit Context(Device& device);
  ~Context();
  Context(const Context&) = delete;

  // Takes the context's overhead from the device and makes the engine. CUDA_ERROR_OUT_OF_MEMORY if it does not fit.
  cuda::CUresult Open(unsigned flags);
  // Waits for the work, then frees all that belongs to the context. No-op if closed.
  void Close();

  Device& device() { return device_; }
  Engine& engine() { return *engine_; }  // only while open
  Heap& heap() { return *heap_; }        // only while open
  // Memory of code and of graphs, which may outlast the context; only while open.
  const std::shared_ptr<Heap>& code_heap();
  bool open() const { return open_; }
  std::uint64_t id() const { return id_; }  // unique in the process, new with each Open
  unsigned flags() const { return flags_; }
  void set_flags(unsigned flags) { flags_ = flags; }
  std::array<std::size_t, cuda::CU_LIMIT_MAX>& limits() { return limits_; }

  // The first fault of a kernel stays: every later call in this context returns it. So does the error that ended the
  // process as a client of MPS. Thread-safe. A fault ends all other clients of the server, too.
  void SetSticky(cuda::CUresult fault);
  cuda::CUresult sticky() const;

  cuda::CUcontext handle() { return reinterpret_cast<cuda::CUcontext>(this); }
  // Null if `handle` is no context of this process; it may be closed. Of a green context: the primary one.
  static Context* FromHandle(cuda::CUcontext handle);
  // Those of the process. They stay open for as long as no call is inside of the API (api_gate.h).
  static std::vector<Context*> AllOpen();

 private:
  Device& device_;
  std::atomic<bool> open_ = false;
  std::atomic<cuda::CUresult> sticky_ = cuda::CUDA_SUCCESS;
  std::uint64_t id_ = 0;
  unsigned flags_ = 0;
  std::array<std::size_t, cuda::CU_LIMIT_MAX> limits_ = {};
  std::unique_ptr<Heap> heap_;
  std::unique_ptr<Engine> engine_;
};

// What a thread works in: a context, and perhaps a green context that is part of it.
struct Current {
  Context* context = nullptr;  // null: none
  const GreenContext* green = nullptr;

  cuda::CUcontext handle() const;
  // Null for a handle of neither.
  static Current FromHandle(cuda::CUcontext handle);
};

// The top of the calling thread's stack.
Current CurrentPlace();
inline Context* CurrentContext() { return CurrentPlace().context; }
// The multiprocessors that the calling thread's work on the default stream, and on streams that it makes, may use; 0:
// all that the process may.
std::uint32_t CurrentMultiprocessors();
void SetCurrent(const Current& current);  // replaces the top; none pops it
void PushContext(const Current& current);
Current PopContext();

// The checks with which almost every call begins: driver initialized, not forked, a context current, open and without
// a fault. On success `context` is it.
cuda::CUresult UseCurrent(Context*& context);

template <typename Function>
cuda::CUresult WithContext(Function&& function) {
  const ApiCall call;
  Context* context = nullptr;
  if (const cuda::CUresult result = UseCurrent(context); result != cuda::CUDA_SUCCESS) return result;
  return function(*context);
}

}  // namespace tessera::soft
