#pragma once

#include <grpcpp/grpcpp.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "base/result.h"

namespace tessera::kubernetes {

// A gRPC server of these services at a Unix socket that only its owner may open; makes the folder, and takes the place
// of a socket that is there. The services outlive it. ENAMETOOLONG: a socket's path has 107 bytes at most; EADDRINUSE
// or another error of the socket.
Result<std::unique_ptr<grpc::Server>> ServeAt(const std::string& path, std::initializer_list<grpc::Service*> services);

}  // namespace tessera::kubernetes
