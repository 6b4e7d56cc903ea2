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
#include "kubernetes/machine/driver_links.h"
#include "kubernetes/machine/library_copy.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/pods/pod_labeler.h"

namespace tessera::kubernetes {
namespace {

constexpr const char *kDra = "dra", *kDevicePlugin = "device-plugin";

struct Options {
  std::string node, run_dir = "/run/tessera", kubelet_dir = "/var/lib/kubelet", cdi_dir = "/var/run/cdi";
  std::string device_plugin_dir = "/var/lib/kubelet/device-plugins";
  std::string api_server, ca_file, token_file;
  std::string host_root, link_driver;
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

// With our libraries, or in a container with their copy on the machine.
Result<ContainerSetup> SetUpContainers(const Options& options) {
  ContainerSetup setup{.run_dir = options.run_dir, .driver = !options.no_driver, .host_root = options.host_root};
  if (options.host_root.empty()) return setup;
  const std::string copies = options.kubelet_dir + "/plugins/" + kDriver + "/libraries";
  std::error_code error;
  std::filesystem::create_directories(copies, error);
  auto copy = CopyLibraries(setup.installation, copies);
  if (!copy) return std::unexpected(copy.error());
  setup.installation = std::move(*copy);
  RemoveOldCopies(copies, setup.installation,
                  [&](const std::string& old) { return IsCopyInUse(old, options.cdi_dir); });
  return setup;
}

std::unique_ptr<DevicePlugin> StartDevicePlugin(const Options& options, const ContainerSetup& containers,
                                                const ApiServer* server) {
  if (!server) std::fprintf(stderr, "tessera-kubelet: no API server: pods cannot say how much they need\n");
  return DevicePlugin::Start({.keeper = {.node = options.node,
                                         .cdi_dir = options.cdi_dir,
                                         .each = options.vgpus_per_gpu,
                                         .containers = containers},
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
  if (!options.link_driver.empty()) {
    const auto linked = LinkDriver(options.host_root, options.link_driver);
    return linked ? 0 : Complain(linked.error());
  }
  auto access =
      options.api_server.empty() ? AccessOfPod() : AccessOf(options.api_server, options.ca_file, options.token_file);
  const bool can_do_without = options.api_server.empty() && !options.Serves(kDra);
  if (!access && !can_do_without) return Complain(access.error());
  const auto server = access ? std::make_unique<ApiServer>(*access) : nullptr;
  std::error_code error;
  std::filesystem::create_directories(options.cdi_dir, error);
  const auto containers = SetUpContainers(options);
  if (!containers) return Complain(containers.error());

  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Result<std::unique_ptr<DraDriver>> dra;
  if (options.Serves(kDra)) {
    dra = DraDriver::Start({.node = options.node,
                            .kubelet_dir = options.kubelet_dir,
                            .cdi_dir = options.cdi_dir,
                            .containers = *containers},
                           *access);
  }
  if (!dra) return Complain(dra.error());
  std::unique_ptr<DevicePlugin> devices;
  if (options.Serves(kDevicePlugin)) devices = StartDevicePlugin(options, *containers, server.get());
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
  CLI::Option* const node = app.add_option("--node-name", options.node, "name of the node")->envname("NODE_NAME");
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
  CLI::Option* const root = app.add_option(
      "--host-root", options.host_root,
      "in a container: where the machine's / is mounted. Other containers then get the NVIDIA driver from "
      "there, and Tessera's libraries from a copy in the kubelet's folder");
  app.add_option(
         "--link-driver", options.link_driver,
         "only put links into this folder, to the NVIDIA driver below --host-root, for a tesserad in a container")
      ->needs(root)
      ->excludes(node);
  CLI11_PARSE(app, argc, argv);
  if (options.node.empty() && options.link_driver.empty()) {
    std::fprintf(stderr, "tessera-kubelet: --node-name is required: the name of the node\n");
    return 1;
  }
  return tessera::kubernetes::Run(options);
}
