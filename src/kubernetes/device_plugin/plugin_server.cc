#include "kubernetes/device_plugin/plugin_server.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kubernetes/kubelet/unix_server.h"

namespace tessera::kubernetes {
namespace {

constexpr const char* kSocketName = "tessera.dev-vgpu.sock";
constexpr std::chrono::seconds kPatience{5}, kConnects{2};  // with a registration; until the kubelet has connected
constexpr std::chrono::milliseconds kFirstDelay{500}, kLastDelay{30000};

}  // namespace

std::optional<PluginServer::Socket> PluginServer::SocketAt(const std::string& path) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0 || !S_ISSOCK(found.st_mode)) return std::nullopt;
  return Socket{.device = found.st_dev, .inode = found.st_ino, .made = found.st_ctim};
}

Result<void> PluginServer::Step() {
  if (!devices_.WaitKnown(kFirstDelay)) return {};
  const std::string path = folder_ + "/" + kSocketName;
  if (!server_ || SocketAt(path) != own_) {
    Close();
    auto server = ServeAt(path, {&service_});
    if (!server) return std::unexpected(server.error());
    server_ = std::move(*server);
    own_ = SocketAt(path);
    registered_.reset();
  }
  const auto kubelet = SocketAt(folder_ + "/kubelet.sock");
  const auto now = Clock::now();
  if (service_.Listeners() > 0) {
    heard_ = now;
    delay_ = {};
  }
  if (kubelet && kubelet == registered_ && now - heard_ < kConnects) return {};
  if (!kubelet) {
    registered_.reset();
    return Fail(ENOENT, folder_ + "/kubelet.sock is not there", "see whether the kubelet runs");
  }
  if (kubelet != tried_) delay_ = {};  // it has begun anew
  if (kubelet == tried_ && now < next_) return last_;
  last_ = Register();
  delay_ = std::clamp(2 * delay_, kFirstDelay, kLastDelay);
  tried_ = kubelet;
  next_ = Clock::now() + delay_;
  registered_ = last_ ? kubelet : std::nullopt;
  heard_ = Clock::now();
  if (last_) std::fprintf(stderr, "tessera-kubelet: registered with the kubelet for %s\n", kVGpuResource);
  return last_;
}

Result<void> PluginServer::Register() {
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no connection to the kubelet that was there before
  const auto kubelet = v1beta1::Registration::NewStub(
      grpc::CreateCustomChannel("unix:" + folder_ + "/kubelet.sock", grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(kSocketName);
  request.set_resource_name(kVGpuResource);
  *request.mutable_options() = PluginService::Options();
  v1beta1::Empty answer;
  if (const auto status = kubelet->Register(&context, request, &answer); !status.ok())
    return Fail(ECONNREFUSED,
                "the kubelet does not register " + std::string(kVGpuResource) + ": " + status.error_message());
  return {};
}

void PluginServer::Close() {
  if (server_) server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

}  // namespace tessera::kubernetes
