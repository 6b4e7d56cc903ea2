#include "base/install/peer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tessera {
namespace {

// The first number of a file; `otherwise` if there is none.
unsigned long NumberIn(const char* path, unsigned long otherwise) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  char text[128] = {};
  const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  return length > 0 ? strtoul(text, nullptr, 10) : otherwise;
}

// The number that stands for users of other namespaces.
uid_t UnknownUser() { return static_cast<uid_t>(NumberIn("/proc/sys/kernel/overflowuid", 65534)); }

// In the first namespace, all users are mapped to themselves: "0 0 4294967295". user_namespaces(7)
bool InUserNamespace() {
  const int file = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
  char text[128] = {};
  const ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  unsigned long inside = 1, outside = 1, count = 0;
  if (length <= 0 || sscanf(text, "%lu %lu %lu", &inside, &outside, &count) != 3) return false;
  return inside != 0 || outside != 0 || count != 4294967295UL;
}

}  // namespace

uid_t PeerUser(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  return known ? peer.uid : static_cast<uid_t>(-1);
}

bool IsTrustedUser(uid_t user) {
  return user == geteuid() || user == 0 || (user == UnknownUser() && InUserNamespace());
}

bool PeerIsOwn(int socket) { return PeerUser(socket) == geteuid(); }

bool PeerIsTrusted(int socket) { return IsTrustedUser(PeerUser(socket)); }

}  // namespace tessera
