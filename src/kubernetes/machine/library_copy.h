#pragma once

#include <functional>
#include <string>

#include "base/install/installation.h"
#include "base/result.h"

namespace tessera::kubernetes {

// For a driver that runs in a container: what other containers are given must lie on the machine, and not in ours.
//
// Copies the libraries of `from` into a folder of `folder` that is named after their content, and returns it as an
// installation (only its Libraries() are there). `folder` has the same path on the machine as here. A copy that is
// there already is not touched. A new one appears whole, also after a power failure. ENOSPC and other errors of the
// disk; EINVAL: not even the shim is there to be copied. Blocks until the data is on the disk.
Result<Installation> CopyLibraries(const Installation& from, const std::string& folder);

// Removes the copies in `folder` but that of `now`, and but those of which `in_use` says that containers have them: it
// is given their path. What cannot be removed is left for the next time.
void RemoveOldCopies(const std::string& folder, const Installation& now,
                     const std::function<bool(const std::string& copy)>& in_use);

// Whether a CDI specification in `cdi_dir` names a file of the copy, or a process that /proc shows has it mounted.
bool IsCopyInUse(const std::string& copy, const std::string& cdi_dir);

}  // namespace tessera::kubernetes
