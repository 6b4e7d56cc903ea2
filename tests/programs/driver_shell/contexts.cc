// Start and contexts.
#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

std::vector<CUcontext> made_contexts;

CUdevice DeviceAt(const Words& words, std::size_t index) {
  CUdevice device = -1;
  Call("cuDeviceGet", &device, index < words.size() ? static_cast<int>(NumberAt(words, index)) : 0);
  return device;
}

Reply Create(const Words& words) {
  CUcontext context = nullptr;
  const CUresult result = Call("cuCtxCreate_v2", &context, 0u, DeviceAt(words, 0));
  if (result != CUDA_SUCCESS) return result;
  made_contexts.push_back(context);
  return Reply(result).Add("id", static_cast<long long>(made_contexts.size()) - 1);
}

Reply Primary(const Words& words) {
  CUcontext context = nullptr;
  const CUresult result = Call("cuDevicePrimaryCtxRetain", &context, DeviceAt(words, 0));
  return result == CUDA_SUCCESS ? Call("cuCtxSetCurrent", context) : result;
}

}  // namespace

void AddContextCommands(Commands& commands) {
  commands["init"] = [](const Words&) -> Reply { return Call("cuInit", 0u); };
  commands["devices"] = [](const Words&) {
    int count = -1;
    const CUresult result = Call("cuDeviceGetCount", &count);
    return Reply(result).Add("count", count);
  };
  commands["context"] = Create;
  commands["current"] = [](const Words& words) -> Reply {
    return Call("cuCtxSetCurrent", made_contexts.at(NumberAt(words, 0)));
  };
  // peer ID: the current context gets access to the memory of that one's device.
  commands["peer"] = [](const Words& words) -> Reply {
    return Call("cuCtxEnablePeerAccess", made_contexts.at(NumberAt(words, 0)), 0u);
  };
  commands["destroy"] = [](const Words& words) -> Reply {
    return Call("cuCtxDestroy_v2", made_contexts.at(NumberAt(words, 0)));
  };
  commands["detach"] = [](const Words& words) -> Reply {
    return Call("cuCtxDetach", made_contexts.at(NumberAt(words, 0)));
  };
  commands["primary"] = Primary;
  commands["primary_release"] = [](const Words& words) -> Reply {
    return Call("cuDevicePrimaryCtxRelease_v2", DeviceAt(words, 0));
  };
  commands["primary_reset"] = [](const Words& words) -> Reply {
    return Call("cuDevicePrimaryCtxReset_v2", DeviceAt(words, 0));
  };
}

}  // namespace tessera::shell
