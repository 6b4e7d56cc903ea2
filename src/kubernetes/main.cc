// tessera-kubelet: the DRA driver of a Kubernetes node. It gives pods vGPUs of the node's tesserad.
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "kubernetes/claims/claim_preparer.h"
#include "kubernetes/kubelet/plugin.h"
#include "kubernetes/objects/names.h"
#include "kubernetes/pods/pod_watch.h"
#include "kubernetes/slices/slice_publisher.h"

namespace tessera::kubernetes {
namespace {

struct Options {
  std::string node, run_dir = "/run/tessera", kubelet_dir = "/var/lib/kubelet", cdi_dir = "/var/run/cdi";
  std::string api_server, ca_file, token_file;
  bool no_driver = false;
};

int Complain(const Error& error) {
  std::fprintf(stderr, "tessera-kubelet: %s\n", error.Text().c_str());
  return 1;
}

int Run(const Options& options) {
  auto access =
      options.api_server.empty() ? AccessOfPod() : AccessOf(options.api_server, options.ca_file, options.token_file);
  if (!access) return Complain(access.error());
  const std::string folder = options.kubelet_dir + "/plugins/" + kDriver;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::filesystem::create_directories(options.cdi_dir, error);
  ApiServer server(*access);
  auto preparer = ClaimPreparer::Start({.node = options.node,
                                        .run_dir = options.run_dir,
                                        .cdi_dir = options.cdi_dir,
                                        .checkpoint = folder + "/checkpoint.json",
                                        .driver = !options.no_driver},
                                       server);
  if (!preparer) return Complain(preparer.error());
  if (auto removed = (*preparer)->RemoveStray(); !removed)
    Complain(removed.error());  // the kubelet can wait for tesserad

  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  StatusWriter status(options.node, server, [&](const std::string& uid) { return (*preparer)->Find(uid); });
  HealthBoard health;
  auto plugin = Plugin::Start(options.kubelet_dir, options.node, **preparer, status, health);
  if (!plugin) return Complain(plugin.error());
  const SlicePublisher publisher(options.node, options.run_dir, server, health);
  const PodWatch pods(options.node, *access, **preparer, status);
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
  CLI::App app("DRA driver of a Kubernetes node: pods get vGPUs of the node's tesserad", "tessera-kubelet");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.add_option("--node-name", options.node, "name of the node")->envname("NODE_NAME")->required();
  app.add_option("--run-dir", options.run_dir, "run directory of tesserad")
      ->envname("TESSERA_RUN_DIR")
      ->capture_default_str();
  app.add_option("--kubelet-dir", options.kubelet_dir, "the kubelet's --root-dir")->capture_default_str();
  app.add_option("--cdi-dir", options.cdi_dir, "folder for CDI specifications")->capture_default_str();
  CLI::Option* const url = app.add_option("--api-server", options.api_server, "https://HOST:PORT (default: the pod's)");
  app.add_option("--ca-file", options.ca_file, "certificate authority of --api-server")->needs(url);
  app.add_option("--token-file", options.token_file, "token for --api-server; read again for each request")->needs(url);
  app.add_flag("--no-driver", options.no_driver,
               "containers get the NVIDIA driver by another CDI device or by their image");
  CLI11_PARSE(app, argc, argv);
  return tessera::kubernetes::Run(options);
}
