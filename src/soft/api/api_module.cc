// Modules, their functions and variables.
#include <fstream>
#include <iterator>

#include "soft/api/api.h"
#include "soft/exec/capture.h"
#include "soft/exec/engine.h"
#include "soft/exec/submit.h"
#include "soft/module/jit_options.h"
#include "soft/module/library.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

template <typename Body>
CUresult WithModule(CUmodule handle, Body&& body) {
  return WithContext([&](Context&) {
    const auto module = Modules::Get().Find(handle);
    return module ? body(module) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// Code is copied to the GPU by a channel of the context's own: the call waits for that, and for whoever has frozen it.
CUresult Upload(Context& context) {
  std::byte code[8] = {}, there[8];
  const auto address = [](std::byte* bytes) { return reinterpret_cast<std::uint64_t>(bytes); };
  CopyWork work;
  CUresult result = ResolveCopy(
      LinearCopy(CU_MEMORYTYPE_HOST, address(there), CU_MEMORYTYPE_HOST, address(code), sizeof code), &work.copy);
  if (result != CUDA_SUCCESS) return result;
  const auto stream = context.engine().AddStream(CU_STREAM_NON_BLOCKING, 0);
  OpRef done;
  result = Submit(stream, std::move(work), &done);
  if (result == CUDA_SUCCESS) result = WaitFor(done, context);
  context.engine().RemoveStream(stream);
  return result;
}

}  // namespace

// ---- modules ------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned option_count, CUjit_option* options,
                                    void** values) {
  return WithContext([&](Context& context) {
    if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module;
    std::string log;
    const CUresult result = Module::Load(context, image, &module, &log);
    JitOptions(option_count, options, values).Answer(log);
    if (result != CUDA_SUCCESS) return result;
    if (const CUresult uploaded = Upload(context); uploaded != CUDA_SUCCESS) return uploaded;
    for (const auto& function : module->functions()) Functions::Get().Add(function);
    *handle = Modules::Get().Add(std::move(module));
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuModuleLoadData(CUmodule* handle, const void* image) {
  return cuModuleLoadDataEx(handle, image, 0, nullptr, nullptr);
}

TESSERA_CUDA_API cuModuleLoadFatBinary(CUmodule* handle, const void* image) { return cuModuleLoadData(handle, image); }

TESSERA_CUDA_API cuModuleLoad(CUmodule* handle, const char* path) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string image(std::istreambuf_iterator<char>(file), {});
  return cuModuleLoadData(handle, image.c_str());
}

TESSERA_CUDA_API cuModuleUnload(CUmodule handle) {
  return WithModule(handle, [&](const auto& module) {
    if (const CUresult result = CheckUnsafeCall(); result != CUDA_SUCCESS) return result;
    // Queued kernels keep the code and its variables until they have run.
    for (const auto& function : module->functions()) Functions::Get().Remove(Functions::Of(*function));
    Modules::Get().Remove(handle);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuModuleGetFunction(CUfunction* function_handle, CUmodule handle, const char* name) {
  return WithModule(handle, [&](const auto& module) {
    if (function_handle == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    const auto function = module->Find(name);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    *function_handle = Functions::Of(*function);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  return WithModule(handle, [&](const auto& module) { return Give(count, module->functions().size()); });
}

TESSERA_CUDA_API cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule handle, const char* name) {
  return WithModule(handle, [&](const auto& module) {
    if (name == nullptr || (address == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    return module->FindVariable(name, address, bytes);
  });
}

// ---- functions ----------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return WithFunction(handle, [&](Context&, const Function& function) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : function.GetAttribute(attribute, value);
  });
}

TESSERA_CUDA_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  return WithFunction(handle, [&](Context&, Function& function) { return function.SetAttribute(attribute, value); });
}

TESSERA_CUDA_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  return WithFunction(handle, [](Context&, const Function&) { return CUDA_SUCCESS; });
}

TESSERA_CUDA_API cuFuncGetName(const char** name, CUfunction handle) {
  return WithFunction(handle,
                      [&](Context&, const Function& function) { return Give(name, function.kernel.name.c_str()); });
}

TESSERA_CUDA_API cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  return WithFunction(handle, [&](Context&, const Function& function) {
    const auto& parameters = function.kernel.parameters;
    if (offset == nullptr || index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = parameters[index].offset;
    if (bytes != nullptr) *bytes = parameters[index].bytes;
    return CUDA_SUCCESS;
  });
}

}  // namespace tessera::soft
