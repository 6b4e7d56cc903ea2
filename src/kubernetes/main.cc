// tessera-kubelet: the DRA driver and the device plugin of a Kubernetes node. They give pods vGPUs of the node's
// tesserad.
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kubernetes/device_plugin/device_plugin.h"
#include "kubernetes/dra_driver.h"
#include "kubernetes/pods/pod_labeler.h"

namespace tessera::kubernetes {
namespace {

constexpr const char *kDra = "dra", *kDevicePlugin = "device-plugin";

struct Options {
  std::string node, run_dir = "/run/tessera", kubelet_dir = "/var/lib/kubelet", cdi_dir = "/var/run/cdi";
  std::string device_plugin_dir = "/var/lib/kubelet/device-plugins";
  std::string api_server, ca_file, token_file;
  std::vector<std::string> serve = {kDra};
  unsigned vgpus_per_gpu = 10;
  double look_seconds = 5;
  bool no_driver = false;

  std::chrono::milliseconds Look() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(look_seconds * 1000));
  }
  bool Serves(const char* what) const { return std::ranges::find(serve, what) != serve.end(); }
};

int Complain(const Error& error) {
  std::fprintf(stderr, "tessera-kubelet: %s\n", error.Text().c_str());
  return 1;
}

std::unique_ptr<DevicePlugin> StartDevicePlugin(const Options& options, const ApiServer* server) {
  if (!server) std::fprintf(stderr, "tessera-kubelet: no API server: pods cannot say how much they need\n");
  return DevicePlugin::Start({.keeper = {.node = options.node,
                                         .cdi_dir = options.cdi_dir,
                                         .each = options.vgpus_per_gpu,
                                         .containers = {.run_dir = options.run_dir, .driver = !options.no_driver}},
                              .folder = options.device_plugin_dir,
                              .pod_resources = options.kubelet_dir + "/" + kPodResourcesSocket,
                              .look = options.Look()},
                             server);
}

// Null `dra`: there are no claims.
std::unique_ptr<PodLabeler> StartLabeler(const Options& options, DraDriver* dra) {
  return std::make_unique<PodLabeler>(
      options.run_dir, [socket = options.kubelet_dir + "/" + kPodResourcesSocket] { return ListPodResources(socket); },
      [dra] { return dra ? dra->Claims() : Checkpoint::Claims(); },
      options.Serves(kDevicePlugin) ? DeviceVGpus(PluginVGpus) : DeviceVGpus(), options.Look());
}

int Run(const Options& options) {
  auto access =
      options.api_server.empty() ? AccessOfPod() : AccessOf(options.api_server, options.ca_file, options.token_file);
  const bool can_do_without = options.api_server.empty() && !options.Serves(kDra);
  if (!access && !can_do_without) return Complain(access.error());
  const auto server = access ? std::make_unique<ApiServer>(*access) : nullptr;
  std::error_code error;
  std::filesystem::create_directories(options.cdi_dir, error);

  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Result<std::unique_ptr<DraDriver>> dra;
  if (options.Serves(kDra)) {
    dra = DraDriver::Start({.node = options.node,
                            .run_dir = options.run_dir,
                            .kubelet_dir = options.kubelet_dir,
                            .cdi_dir = options.cdi_dir,
                            .driver = !options.no_driver},
                           *access);
  }
  if (!dra) return Complain(dra.error());
  std::unique_ptr<DevicePlugin> devices;
  if (options.Serves(kDevicePlugin)) devices = StartDevicePlugin(options, server.get());
  const auto labeler = StartLabeler(options, dra->get());
  std::fprintf(stderr, "tessera-kubelet: serving node %s\n", options.node.c_str());
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

}  // namespace
}  // namespace tessera::kubernetes

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  tessera::kubernetes::Options options;
  CLI::App app("DRA driver and device plugin of a Kubernetes node: pods get vGPUs of the node's tesserad",
               "tessera-kubelet");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.add_option("--node-name", options.node, "name of the node")->envname("NODE_NAME")->required();
  app.add_option("--run-dir", options.run_dir, "run directory of tesserad")
      ->envname("TESSERA_RUN_DIR")
      ->capture_default_str();
  app.add_option("--serve", options.serve, "what to serve, separated by commas: dra, device-plugin")
      ->delimiter(',')
      ->check(CLI::IsMember({tessera::kubernetes::kDra, tessera::kubernetes::kDevicePlugin}))
      ->capture_default_str();
  app.add_option("--vgpus-per-gpu", options.vgpus_per_gpu, "devices tessera.dev/vgpu that each GPU is")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--kubelet-dir", options.kubelet_dir, "the kubelet's --root-dir")->capture_default_str();
  app.add_option("--cdi-dir", options.cdi_dir, "folder for CDI specifications")->capture_default_str();
  app.add_option("--device-plugin-dir", options.device_plugin_dir, "the kubelet's folder for device plugins")
      ->capture_default_str();
  app.add_option(
         "--look-seconds", options.look_seconds,
         "how often the device plugin asks tesserad and the kubelet,\nand the kubelet is asked for the names of pods")
      ->check(CLI::Range(0.05, 60.0))
      ->capture_default_str();
  CLI::Option* const url = app.add_option("--api-server", options.api_server, "https://HOST:PORT (default: the pod's)");
  app.add_option("--ca-file", options.ca_file, "certificate authority of --api-server")->needs(url);
  app.add_option("--token-file", options.token_file, "token for --api-server; read again for each request")->needs(url);
  app.add_flag("--no-driver", options.no_driver,
               "containers get the NVIDIA driver by another CDI device or by their image");
  CLI11_PARSE(app, argc, argv);
  return tessera::kubernetes::Run(options);
}
