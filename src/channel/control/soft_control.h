#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "channel/control/control.h"
#include "soft/shared/shared_state.h"

namespace tessera::channel {

// Control of the soft GPUs. They know processes by their pids; targets need no groups and no pidfd. An MPS server and
// its clients are one: to order something for one of them orders it for all. A process that is not attached is passed
// over, and what was ordered for it is forgotten: whoever finds it later freezes it then. The last reach stands; a thaw
// is one of all. Errors are for GPUs that do not exist, and those of SetSlice.
std::unique_ptr<Control> MakeSoftControl(std::unique_ptr<soft::SharedState> state);

// The same with the soft GPUs of this user that exist; `spec` (empty: the default) is for the first one to come.
Result<std::unique_ptr<Control>> OpenSoftControl(const std::string& spec = {});

}  // namespace tessera::channel
