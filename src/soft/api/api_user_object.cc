// User objects: what graphs keep alive for the program.
#include <algorithm>

#include "soft/api/graph_api.h"
#include "soft/exec/user_object.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// Runs `function(held, object)` for a handle whose object lives.
template <typename Function>
CUresult WithUserObject(CUuserObject handle, unsigned count, Function&& function) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  const auto held = UserObjects::Get().Find(handle);
  auto object = held ? held->object.lock() : nullptr;
  return object && count > 0 ? function(*held, object) : CUDA_ERROR_INVALID_VALUE;
}

// Takes `count` references out, which end when the result does. None if there are not as many.
UserObjectRefs Take(UserObjectRefs& references, const std::shared_ptr<UserObject>& object, unsigned count) {
  UserObjectRefs taken;
  if (std::ranges::count(references, object) < static_cast<std::ptrdiff_t>(count)) return taken;
  for (auto at = references.begin(); taken.size() < count;) {
    if (*at != object) {
      ++at;
      continue;
    }
    taken.push_back(std::move(*at));
    at = references.erase(at);
  }
  return taken;
}

}  // namespace

TESSERA_CUDA_API cuUserObjectCreate(CUuserObject* handle, void* data, CUhostFn destroy, unsigned count,
                                    unsigned flags) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  if (handle == nullptr || destroy == nullptr || count == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  const auto object = std::make_shared<UserObject>(destroy, data);
  auto held = std::make_shared<HeldUserObject>();
  held->object = object;
  {
    const MutexLock lock(held->mutex);
    held->references.assign(count, object);
  }
  *handle = UserObjects::Get().Add(std::move(held));
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuUserObjectRetain(CUuserObject handle, unsigned count) {
  return WithUserObject(handle, count, [&](HeldUserObject& held, const auto& object) {
    const MutexLock lock(held.mutex);
    held.references.insert(held.references.end(), count, object);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuUserObjectRelease(CUuserObject handle, unsigned count) {
  UserObjectRefs released;  // end without the lock
  return WithUserObject(handle, count, [&](HeldUserObject& held, const auto& object) {
    const MutexLock lock(held.mutex);
    released = Take(held.references, object, count);
    return released.empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
  return WithGraph(graph_handle, [&](const auto& graph) {
    if (flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
    return WithUserObject(handle, count, [&](HeldUserObject& held, const auto& object) {
      UserObjectRefs references(count, object);
      if (flags == CU_GRAPH_USER_OBJECT_MOVE) {
        const MutexLock lock(held.mutex);
        references = Take(held.references, object, count);
        if (references.empty()) return CUDA_ERROR_INVALID_VALUE;
      }
      graph->user_objects.insert(graph->user_objects.end(), references.begin(), references.end());
      return CUDA_SUCCESS;
    });
  });
}

TESSERA_CUDA_API cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  return WithGraph(graph_handle, [&](const auto& graph) {
    return WithUserObject(handle, count, [&](HeldUserObject&, const auto& object) {
      return Take(graph->user_objects, object, count).empty() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    });
  });
}

}  // namespace tessera::soft
