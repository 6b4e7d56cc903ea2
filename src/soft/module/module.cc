#include "soft/module/module.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "soft/device/context.h"
#include "soft/device/heap.h"
#include "soft/module/fatbin.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

CUresult ImageError(const Error& error) {
  switch (error.code) {
    case ENOENT:
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case ENOTSUP:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_IMAGE;
  }
}

// The number behind ".version", as in 70 for 7.0; 0 if there is none.
int PtxVersion(std::string_view text) {
  const auto at = text.find(".version");
  int major = 0, minor = 0;
  if (at == text.npos || std::sscanf(std::string(text.substr(at, 32)).c_str(), ".version %d.%d", &major, &minor) != 2) {
    return 0;
  }
  return major * 10 + minor;
}

// A result code says little; who looks at the terminal gets the reason, and so does the caller's log.
CUresult Report(CUresult result, const Error& error, std::string* log) {
  std::fprintf(stderr, "tessera soft GPU: %s\n", error.Text().c_str());
  if (log) *log = error.Text();
  return result;
}

}  // namespace

CUresult ParseImage(const void* image, std::unique_ptr<ptx::Module>* code, int* ptx_version, std::string* log) {
  const auto text = FindPtx(image, kComputeCapability);
  if (!text) return Report(ImageError(text.error()), text.error(), log);
  auto parsed = ptx::Module::Parse(*text);
  if (!parsed) return Report(CUDA_ERROR_INVALID_PTX, parsed.error(), log);
  *code = std::move(*parsed);
  *ptx_version = PtxVersion(*text);
  return CUDA_SUCCESS;
}

CUresult Function::GetAttribute(CUfunction_attribute attribute, int* value) const {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(kernel.max_threads);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kernel.static_shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      std::uint64_t bytes = 0;
      for (const auto& variable : module.code().variables()) bytes += variable.constant ? variable.bytes : 0;
      *value = static_cast<int>(bytes);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(kernel.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(kernel.registers);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = module.ptx_version();
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = kComputeCapability;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = max_dynamic_shared_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = preferred_carveout;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Function::SetAttribute(CUfunction_attribute attribute, int value) {
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    const int limit = module.context().device().Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    if (value < 0 || value > limit - static_cast<int>(kernel.static_shared_bytes)) return CUDA_ERROR_INVALID_VALUE;
    max_dynamic_shared_bytes = value;
    return CUDA_SUCCESS;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
    preferred_carveout = value;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

Module::Module(Context& context, std::shared_ptr<Heap> heap, std::unique_ptr<ptx::Module> code, int ptx_version)
    : context_(context), heap_(std::move(heap)), code_(std::move(code)), ptx_version_(ptx_version) {
  const int without_opt_in = context.device().Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  functions_.reserve(code_->kernels().size());
  for (const ptx::Kernel& kernel : code_->kernels()) {
    const int rest = without_opt_in - static_cast<int>(kernel.static_shared_bytes);
    functions_.push_back({*this, kernel, std::max(rest, 0)});
  }
}

Module::~Module() {
  for (const CUdeviceptr address : variables_) {
    if (address != 0) heap_->Free(address);
  }
}

CUresult Module::Load(Context& context, const void* image, std::shared_ptr<Module>* module, std::string* log) {
  std::unique_ptr<ptx::Module> code;
  int ptx_version = 0;
  if (const CUresult result = ParseImage(image, &code, &ptx_version, log); result != CUDA_SUCCESS) return result;
  auto loaded = std::make_shared<Module>(context, context.code_heap(), std::move(code), ptx_version);
  if (const CUresult result = loaded->PlaceVariables(); result != CUDA_SUCCESS) return result;
  *module = std::move(loaded);
  return CUDA_SUCCESS;
}

CUresult Module::PlaceVariables() {
  const auto& variables = code_->variables();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    CUdeviceptr address = 0;
    if (variables[i].bytes != 0) {
      if (const CUresult result = heap_->Allocate(variables[i].bytes, &address); result != CUDA_SUCCESS) return result;
    }
    variables_.push_back(address);
    code_->Place(i, address);
  }
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const std::vector<std::byte> bytes = code_->InitialBytes(i);
    auto* const memory = reinterpret_cast<std::byte*>(variables_[i]);
    std::ranges::copy(bytes, memory);
    std::fill(memory + bytes.size(), memory + variables[i].bytes, std::byte{0});
  }
  return CUDA_SUCCESS;
}

std::vector<std::shared_ptr<Function>> Module::functions() {
  std::vector<std::shared_ptr<Function>> shared;
  shared.reserve(functions_.size());
  for (Function& function : functions_) shared.emplace_back(shared_from_this(), &function);
  return shared;
}

std::shared_ptr<Function> Module::Find(std::string_view kernel) {
  const auto found = std::ranges::find(functions_, kernel, [](const Function& f) { return f.kernel.name; });
  return found == functions_.end() ? nullptr : std::shared_ptr<Function>(shared_from_this(), &*found);
}

CUresult Module::FindVariable(std::string_view name, CUdeviceptr* address, std::size_t* bytes,
                              bool managed_only) const {
  const auto& variables = code_->variables();
  const auto found = std::ranges::find(variables, name, &ptx::Variable::name);
  if (found == variables.end() || (managed_only && !found->managed)) return CUDA_ERROR_NOT_FOUND;
  if (address) *address = variables_[static_cast<std::size_t>(found - variables.begin())];
  if (bytes) *bytes = found->bytes;
  return CUDA_SUCCESS;
}

}  // namespace tessera::soft
