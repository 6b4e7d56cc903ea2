// Libraries and kernels: code that belongs to no context.
#include <fstream>
#include <iterator>

#include "soft/api/api.h"
#include "soft/module/library.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

template <typename Body>
CUresult WithLibrary(CUlibrary handle, Body&& body) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  const auto library = Libraries::Get().Find(handle);
  return library ? body(library) : CUDA_ERROR_INVALID_HANDLE;
}

template <typename Body>
CUresult WithKernel(CUkernel handle, Body&& body) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  const auto kernel = Kernels::Get().Find(handle);
  return kernel ? body(*kernel) : CUDA_ERROR_INVALID_HANDLE;
}

// The kernel's function in the current context.
template <typename Body>
CUresult WithFunctionOf(CUkernel handle, Body&& body) {
  return WithKernel(handle, [&](const Kernel& kernel) {
    return WithContext([&](Context& context) {
      std::shared_ptr<Function> function;
      const CUresult result = kernel.library.FunctionIn(context, kernel, &function);
      return result == CUDA_SUCCESS ? body(context, *function) : result;
    });
  });
}

template <typename Body>
CUresult WithKernelsOf(CUlibrary handle, Body&& body) {
  return WithLibrary(handle, [&](const auto& library) {
    std::vector<std::shared_ptr<Kernel>> kernels;
    const CUresult result = library->ListKernels(&kernels);
    return result == CUDA_SUCCESS ? body(kernels) : result;
  });
}

CUresult FindVariable(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle, const char* name, bool managed) {
  return WithLibrary(handle, [&](const auto& library) {
    return WithContext([&](Context& context) {
      if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
      std::shared_ptr<Module> module;
      const CUresult result = library->ModuleIn(context, &module);
      return result == CUDA_SUCCESS ? module->FindVariable(name, address, bytes, managed) : result;
    });
  });
}

}  // namespace

TESSERA_CUDA_API cuLibraryLoadData(CUlibrary* handle, const void* image, CUjit_option*, void**, unsigned,
                                   CUlibraryOption*, void**, unsigned) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = Libraries::Get().Add(std::make_shared<Library>(image));
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuLibraryUnload(CUlibrary handle) {
  return WithLibrary(handle, [&](const auto& library) {
    library->RemoveHandles();
    Libraries::Get().Remove(handle);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuLibraryGetKernel(CUkernel* kernel_handle, CUlibrary handle, const char* name) {
  return WithKernelsOf(handle, [&](const auto& kernels) {
    if (kernel_handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& kernel : kernels) {
      if (kernel->code.name == name) return Give(kernel_handle, Kernels::Get().Add(kernel));
    }
    return CUDA_ERROR_NOT_FOUND;
  });
}

TESSERA_CUDA_API cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  return WithKernelsOf(handle, [&](const auto& kernels) { return Give(count, kernels.size()); });
}

TESSERA_CUDA_API cuLibraryGetModule(CUmodule* module_handle, CUlibrary handle) {
  return WithLibrary(handle, [&](const auto& library) {
    return WithContext([&](Context& context) {
      std::shared_ptr<Module> module;
      const CUresult result = library->ModuleIn(context, &module);
      return result == CUDA_SUCCESS ? Give(module_handle, Modules::Of(*module)) : result;
    });
  });
}

TESSERA_CUDA_API cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle, const char* name) {
  return FindVariable(address, bytes, handle, name, /*managed=*/false);
}

TESSERA_CUDA_API cuLibraryGetManaged(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle, const char* name) {
  return FindVariable(address, bytes, handle, name, /*managed=*/true);
}

TESSERA_CUDA_API cuKernelGetFunction(CUfunction* function_handle, CUkernel handle) {
  return WithFunctionOf(
      handle, [&](Context&, const Function& function) { return Give(function_handle, Functions::Of(function)); });
}

TESSERA_CUDA_API cuKernelGetName(const char** name, CUkernel handle) {
  return WithKernel(handle, [&](const Kernel& kernel) { return Give(name, kernel.code.name.c_str()); });
}

TESSERA_CUDA_API cuKernelGetParamInfo(CUkernel handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return WithKernel(handle, [&](const Kernel& kernel) {
    if (offset == nullptr || index >= kernel.code.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel.code.parameters[index].offset;
    if (bytes != nullptr) *bytes = kernel.code.parameters[index].bytes;
    return CUDA_SUCCESS;
  });
}

// All soft devices are alike: what holds for the current context's holds for any.
TESSERA_CUDA_API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice) {
  return WithFunctionOf(handle, [&](Context&, const Function& function) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : function.GetAttribute(attribute, value);
  });
}

TESSERA_CUDA_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice) {
  return WithKernel(handle, [&](const Kernel& kernel) {
    return WithContext(
        [&](Context& context) { return kernel.library.SetAttribute(context, kernel, attribute, value); });
  });
}

}  // namespace tessera::soft
