#pragma once

#include "base/result.h"
#include "wire/checkpoint.h"

namespace tessera::server {

// What the driver's answer means, in words for people. The codes are those of server/checkpoint/checkpointer.h. Any
// thread.
Result<void> MeaningOf(const wire::CheckpointRequest& request, const wire::CheckpointAnswer& answer);

// "cannot lock program 1234"
std::string CannotDo(const wire::CheckpointRequest& request);

}  // namespace tessera::server
