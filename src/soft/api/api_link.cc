// The linker of the API: one PTX text goes in and comes out.
#include <string>

#include "soft/api/api.h"
#include "soft/api/stream_variants.h"
#include "soft/module/jit_options.h"
#include "soft/module/module.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

struct LinkState {
  JitOptions options;  // the caller's buffers live as long as the state, as the API says
  std::string ptx;
};
using LinkStates = Handles<LinkState, CUlinkState>;

}  // namespace

TESSERA_CUDA_API cuLinkCreate_v2(unsigned option_count, CUjit_option* options, void** values, CUlinkState* handle) {
  return WithContext([&](Context&) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *handle =
        LinkStates::Get().Add(std::make_shared<LinkState>(JitOptions(option_count, options, values), std::string()));
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, std::size_t bytes, const char*,
                                  unsigned, CUjit_option*, void**) {
  return WithContext([&](Context&) {
    const auto state = LinkStates::Get().Find(handle);
    if (!state) return CUDA_ERROR_INVALID_HANDLE;
    if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    // A linker of several texts would need names across them: the soft GPU has none.
    if (type != CU_JIT_INPUT_PTX || !state->ptx.empty()) return CUDA_ERROR_NOT_SUPPORTED;
    std::string ptx(static_cast<const char*>(data), bytes);
    ptx.resize(ptx.find_last_not_of('\0') + 1);
    std::unique_ptr<ptx::Module> code;
    int version = 0;
    std::string log;
    const CUresult result = ParseImage(ptx.c_str(), &code, &version, &log);
    state->options.Answer(log);
    if (result == CUDA_SUCCESS) state->ptx = std::move(ptx);
    return result;
  });
}

TESSERA_EXPORT(cuLinkCreate, Alias<&cuLinkCreate_v2>)
TESSERA_EXPORT(cuLinkAddData, Alias<&cuLinkAddData_v2>)

TESSERA_CUDA_API cuLinkComplete(CUlinkState handle, void** image, std::size_t* bytes) {
  return WithContext([&](Context&) {
    const auto state = LinkStates::Get().Find(handle);
    if (!state) return CUDA_ERROR_INVALID_HANDLE;
    if (image == nullptr || state->ptx.empty()) return CUDA_ERROR_INVALID_VALUE;
    *image = state->ptx.data();
    if (bytes != nullptr) *bytes = state->ptx.size() + 1;
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuLinkDestroy(CUlinkState handle) {
  return WithContext(
      [&](Context&) { return LinkStates::Get().Remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
}

}  // namespace tessera::soft
