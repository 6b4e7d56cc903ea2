// The context that the calling thread works in now, and the device under it.
#pragma once

#include "cuda/cuda_abi.h"
#include "shim/device/attachment.h"
#include "shim/load/current_context.h"
#include "shim/load/hook.h"

namespace tessera::shim {

// The attachment of the device of the calling thread's current context, or null.
Attachment* CurrentAttachment();

// The account that pinned memory of that device is charged to, or null.
inline RoomAccount* RoomOf(Attachment* attachment) { return attachment ? &attachment->Room() : nullptr; }
inline RoomAccount* CurrentRoom() { return RoomOf(CurrentAttachment()); }

}  // namespace tessera::shim
