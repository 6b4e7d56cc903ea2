#include "kubernetes/kubelet/unix_server.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace tessera::kubernetes {

Result<std::unique_ptr<grpc::Server>> ServeAt(const std::string& path, std::initializer_list<grpc::Service*> services) {
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return Fail(ENAMETOOLONG, path + " is too long for a socket", "name a folder with a shorter path");
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FailErrno("cannot remove the old " + path);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  for (grpc::Service* const service : services) builder.RegisterService(service);
  auto server = builder.BuildAndStart();
  if (!server || chmod(path.c_str(), 0600) != 0)
    return Fail(EADDRINUSE, "cannot listen at " + path, "see whether the folder is there and can be written");
  return server;
}

}  // namespace tessera::kubernetes
