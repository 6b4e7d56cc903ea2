// PTX loaded into a context.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/ptx/ptx.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

class Context;
class Heap;
class Module;

inline constexpr int kComputeCapability = 90;  // what device.cc answers, too: 9.0

// A kernel of a module. Pointers to one share the module's lifetime.
struct Function {
  Module& module;
  const ptx::Kernel& kernel;
  // Attributes that cuFuncSetAttribute changes.
  int max_dynamic_shared_bytes = 0;
  int preferred_carveout = -1;

  // CUDA_ERROR_INVALID_VALUE for attributes that there are not, or that cannot be set to this.
  cuda::CUresult GetAttribute(cuda::CUfunction_attribute attribute, int* value) const;
  cuda::CUresult SetAttribute(cuda::CUfunction_attribute attribute, int value);
};

class Module : public std::enable_shared_from_this<Module> {
 public:
  // Finds the PTX in `image` (see FindPtx), parses it and puts its variables into device memory. On failure `log`, if
  // not null, gets what is wrong with it.
  static cuda::CUresult Load(Context& context, const void* image, std::shared_ptr<Module>* module, std::string* log);
  ~Module();

  Context& context() const { return context_; }
  const ptx::Module& code() const { return *code_; }
  int ptx_version() const { return ptx_version_; }  // 70 for 7.0

  // In the order of code().kernels().
  std::vector<std::shared_ptr<Function>> functions();
  // Null if there is none of this name.
  std::shared_ptr<Function> Find(std::string_view kernel);
  // CUDA_ERROR_NOT_FOUND if no variable has this name. Any output may be null.
  cuda::CUresult FindVariable(std::string_view name, cuda::CUdeviceptr* address, std::size_t* bytes,
                              bool managed_only = false) const;

  Module(Context& context, std::shared_ptr<Heap> heap, std::unique_ptr<ptx::Module> code, int ptx_version);

 private:
  cuda::CUresult PlaceVariables();

  Context& context_;
  const std::shared_ptr<Heap> heap_;
  const std::unique_ptr<ptx::Module> code_;
  const int ptx_version_;
  std::vector<Function> functions_;
  std::vector<cuda::CUdeviceptr> variables_;  // addresses, 0 for variables without bytes
};

// Finds and parses PTX. The errors are CUDA_ERROR_INVALID_IMAGE, _NO_BINARY_FOR_GPU, _INVALID_PTX and _NOT_SUPPORTED;
// standard error and `log`, if not null, say more.
cuda::CUresult ParseImage(const void* image, std::unique_ptr<ptx::Module>* code, int* ptx_version, std::string* log);

using Modules = Handles<Module, cuda::CUmodule>;
using Functions = Handles<Function, cuda::CUfunction>;

}  // namespace tessera::soft
