#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cuda/cuda_abi.h"
#include "soft/device/context.h"
#include "soft/module/module.h"

namespace tessera::soft {

class Library;

// A kernel of a library: one function in each context that launches it. Pointers to one share the library's lifetime.
struct Kernel {
  Library& library;
  const ptx::Kernel& code;
};

// Code that belongs to no context and is loaded into those that use it, when they do. Thread-safe.
class Library : public std::enable_shared_from_this<Library> {
 public:
  // Copies the image. Faults in it are found when something is asked of it, as with the driver.
  explicit Library(const void* image);

  // The errors of Module::Load.
  cuda::CUresult ListKernels(std::vector<std::shared_ptr<Kernel>>* kernels);
  cuda::CUresult ModuleIn(Context& context, std::shared_ptr<Module>* module);
  cuda::CUresult FunctionIn(Context& context, const Kernel& kernel, std::shared_ptr<Function>* function);
  // An attribute of a kernel in all contexts, those to come included.
  cuda::CUresult SetAttribute(Context& context, const Kernel& kernel, cuda::CUfunction_attribute attribute, int value);
  // The context is closing.
  void Forget(const Context& context);
  // The library is unloaded: its kernels, and its modules and their functions, are no handles any more.
  void RemoveHandles();

 private:
  cuda::CUresult ParseLocked() TESSERA_REQUIRES(mutex_);

  Mutex mutex_;
  std::string text_ TESSERA_GUARDED_BY(mutex_);  // PTX; empty if the image has none
  cuda::CUresult image_error_ TESSERA_GUARDED_BY(mutex_) = cuda::CUDA_SUCCESS;
  std::unique_ptr<ptx::Module> code_ TESSERA_GUARDED_BY(mutex_);  // in no context: names and sizes
  std::vector<Kernel> kernels_ TESSERA_GUARDED_BY(mutex_);
  std::map<const Context*, std::shared_ptr<Module>> modules_ TESSERA_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, cuda::CUfunction_attribute>, int> attributes_ TESSERA_GUARDED_BY(mutex_);
};

using Libraries = Handles<Library, cuda::CUlibrary>;
using Kernels = Handles<Kernel, cuda::CUkernel>;

// Finds what `handle` means in `context`: a function of one of its modules, or the kernel of a library, which is loaded
// now if need be. CUDA_ERROR_INVALID_HANDLE if it is neither.
cuda::CUresult FindFunction(Context& context, cuda::CUfunction handle, std::shared_ptr<Function>* function);

// body(context, function) with what `handle` means in the current context.
template <typename Body>
cuda::CUresult WithFunction(cuda::CUfunction handle, Body&& body) {
  return WithContext([&](Context& context) {
    std::shared_ptr<Function> function;
    const cuda::CUresult result = FindFunction(context, handle, &function);
    return result == cuda::CUDA_SUCCESS ? body(context, *function) : result;
  });
}

}  // namespace tessera::soft
