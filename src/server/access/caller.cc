#include "server/access/caller.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tessera::server {

std::vector<gid_t> GroupsOfPeer(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return {};
  // The first call says how long the list is: 65,536 groups at most.
  length = 0;
  std::vector<gid_t> groups;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &length) != 0 && errno == ERANGE) {
    groups.resize(length / sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length) != 0) groups.clear();
  }
  groups.push_back(peer.gid);
  return groups;
}

std::vector<gid_t> GroupsOfThread(pid_t thread, uid_t uid) {
  std::ifstream status(fmt::format("/proc/{}/status", thread));
  std::vector<gid_t> groups;
  bool same = false;
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    // Each has four: real, effective, saved, and that of the file system, by which FUSE goes (proc(5)).
    long long real = -1, effective = -1, saved = -1, fs = -1;
    if (name == "Uid:" && words >> real >> effective >> saved >> fs) same = fs == static_cast<long long>(uid);
    if (name == "Gid:" && words >> real >> effective >> saved >> fs) groups.push_back(static_cast<gid_t>(fs));
    if (name != "Groups:") continue;
    for (gid_t group; words >> group;) groups.push_back(group);
    break;
  }
  return same ? groups : std::vector<gid_t>();
}

}  // namespace tessera::server
