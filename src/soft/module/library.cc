#include "soft/module/library.h"

#include <algorithm>
#include <cstdio>

#include "soft/device/context.h"
#include "soft/module/fatbin.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

Library::Library(const void* image) {
  auto text = FindPtx(image, kComputeCapability);
  if (text) {
    text_ = std::move(*text);
  } else {
    image_error_ = text.error().code == ENOENT ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
  }
}

CUresult Library::ParseLocked() {
  if (image_error_ != CUDA_SUCCESS || code_) return image_error_;
  int ptx_version = 0;
  image_error_ = ParseImage(text_.c_str(), &code_, &ptx_version, nullptr);
  if (image_error_ != CUDA_SUCCESS) return image_error_;
  for (const ptx::Kernel& kernel : code_->kernels()) kernels_.push_back({*this, kernel});
  return CUDA_SUCCESS;
}

CUresult Library::ListKernels(std::vector<std::shared_ptr<Kernel>>* kernels) {
  const MutexLock lock(mutex_);
  if (const CUresult result = ParseLocked(); result != CUDA_SUCCESS) return result;
  for (Kernel& kernel : kernels_) kernels->emplace_back(shared_from_this(), &kernel);
  return CUDA_SUCCESS;
}

CUresult Library::ModuleIn(Context& context, std::shared_ptr<Module>* module) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Module>& loaded = modules_[&context];
  if (!loaded) {
    if (image_error_ != CUDA_SUCCESS) return image_error_;
    if (const CUresult result = Module::Load(context, text_.c_str(), &loaded, nullptr); result != CUDA_SUCCESS) {
      return result;
    }
    for (const auto& [key, value] : attributes_) loaded->Find(key.first)->SetAttribute(key.second, value);
    Modules::Get().Add(loaded);
    for (const auto& function : loaded->functions()) Functions::Get().Add(function);
  }
  *module = loaded;
  return CUDA_SUCCESS;
}

CUresult Library::FunctionIn(Context& context, const Kernel& kernel, std::shared_ptr<Function>* function) {
  std::shared_ptr<Module> module;
  if (const CUresult result = ModuleIn(context, &module); result != CUDA_SUCCESS) return result;
  *function = module->Find(kernel.code.name);
  return CUDA_SUCCESS;
}

CUresult Library::SetAttribute(Context& context, const Kernel& kernel, CUfunction_attribute attribute, int value) {
  std::shared_ptr<Function> function;
  if (const CUresult result = FunctionIn(context, kernel, &function); result != CUDA_SUCCESS) return result;
  if (const CUresult result = function->SetAttribute(attribute, value); result != CUDA_SUCCESS) return result;
  const MutexLock lock(mutex_);
  attributes_[{kernel.code.name, attribute}] = value;
  for (const auto& [other, module] : modules_) module->Find(kernel.code.name)->SetAttribute(attribute, value);
  return CUDA_SUCCESS;
}

void Library::Forget(const Context& context) {
  std::shared_ptr<Module> module;  // dies outside the lock
  const MutexLock lock(mutex_);
  if (const auto node = modules_.extract(&context)) module = node.mapped();
}

void Library::RemoveHandles() {
  const MutexLock lock(mutex_);
  for (const Kernel& kernel : kernels_) Kernels::Get().Remove(Kernels::Of(kernel));
  for (const auto& [context, module] : modules_) {
    for (const auto& function : module->functions()) Functions::Get().Remove(Functions::Of(*function));
    Modules::Get().Remove(Modules::Of(*module));
  }
}

CUresult FindFunction(Context& context, CUfunction handle, std::shared_ptr<Function>* function) {
  if (auto found = Functions::Get().Find(handle)) {
    if (&found->module.context() != &context) return CUDA_ERROR_INVALID_HANDLE;
    *function = std::move(found);
    return CUDA_SUCCESS;
  }
  const auto kernel = Kernels::Get().Find(reinterpret_cast<CUkernel>(handle));
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  return kernel->library.FunctionIn(context, *kernel, function);
}

}  // namespace tessera::soft
