#pragma once

#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

// Something of the program's that graphs keep alive (cuUserObjectCreate). A reference is a shared_ptr: the program's
// own are in HeldUserObject, those of a graph in the graph. The end of the last one calls the program's destructor on
// the thread that ends it, possibly with locks of the driver held. It may call no CUDA function.
class UserObject {
 public:
  UserObject(cuda::CUhostFn destroy, void* data) : destroy_(destroy), data_(data) {}
  UserObject(const UserObject&) = delete;
  ~UserObject() { destroy_(data_); }

 private:
  const cuda::CUhostFn destroy_;
  void* const data_;
};
using UserObjectRefs = std::vector<std::shared_ptr<UserObject>>;

// What the program has a handle of. Stays until the process ends; invalid once the object is gone.
struct HeldUserObject {
  std::weak_ptr<UserObject> object;
  UserObjectRefs references TESSERA_GUARDED_BY(mutex);  // the program's own
  Mutex mutex;
};
using UserObjects = Handles<HeldUserObject, cuda::CUuserObject>;

}  // namespace tessera::soft
