#pragma once

#include <sys/types.h>

namespace tessera {

// For a process that is to outlive the one that started it, where that runs in a container: the runtime ends all that
// is in the container's control groups (cgroups(7)) with it. Puts the process into those that $TESSERA_LASTING_GROUPS
// names, paths separated by colons. Without the variable, and into a group that does not take it, it is not put. Any
// thread.
void PutIntoLastingGroups(pid_t pid);

}  // namespace tessera
