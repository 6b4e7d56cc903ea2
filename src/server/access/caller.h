#pragma once

#include <sys/types.h>

#include <vector>

namespace tessera::server {

// Who asks the daemon for something, as the kernel says, or the token. Authority makes it.
struct Caller {
  enum class Role {
    kNobody,    // by TCP without the token
    kUser,      // of this machine
    kOperator,  // root, the daemon's own user, a member of the operators' group, a holder of the token
  };
  Role role = Role::kNobody;
  uid_t uid = 0;              // to whom belongs what the caller makes
  std::vector<gid_t> groups;  // its own and the supplementary ones

  bool IsOperator() const { return role == Role::kOperator; }
};

// A process's groups are the kernel's: a name service is never asked, so none of these waits, and a group that was
// given to a user counts from the next login on. Errors give no groups.

// Of the process that connected this Unix socket, when it did (SO_PEERCRED, SO_PEERGROUPS).
std::vector<gid_t> GroupsOfPeer(int socket);

// Of a thread that waits in a system call for this process, by /proc; none if it is not `uid`'s.
std::vector<gid_t> GroupsOfThread(pid_t thread, uid_t uid);

}  // namespace tessera::server
