// The other end of a Unix socket, by what the kernel says of it. Uses the C library only, because the shim carries it
// into every program. Any thread.
#pragma once

#include <sys/types.h>

namespace tessera {

// The user of the process that connected, or that listens (as it was when it began to): SO_PEERCRED, unix(7). -1 cast
// to uid_t if the kernel does not say. Users of other user namespaces are as this process sees them.
uid_t PeerUser(int socket);

// Whether this is root or this process's own user. In a user namespace, a user of outside that has no number inside
// counts as well: the namespace cannot tell root from others, and whoever let it see the socket vouches for that.
bool IsTrustedUser(uid_t user);

// Whether the peer is a process of this one's user.
bool PeerIsOwn(int socket);

// Whether it is one of a trusted user: a server that may be told secrets, and be believed.
bool PeerIsTrusted(int socket);

}  // namespace tessera
