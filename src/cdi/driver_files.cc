#include "cdi/driver_files.h"

#include <filesystem>
#include <fstream>
#include <ranges>

#include "base/processor/processor.h"

namespace tessera::cdi {
namespace {

namespace fs = std::filesystem;

// As the shim looks for the driver (shim/load/real.cc).
constexpr const char* kFolders[] = {TESSERA_LIBRARY_FOLDER, "/usr/lib64", "/usr/local/nvidia/lib64",
                                    "/usr/local/nvidia/lib", "/usr/lib"};
constexpr const char* kNodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"};
// For CUDA and OpenCL, and what these load in turn; all but the first may be missing.
constexpr const char* kLibraries[] = {"libcuda.so.1",        "libnvidia-ml.so.1",     "libnvidia-ptxjitcompiler.so.1",
                                      "libnvidia-nvvm.so.4", "libnvidia-opencl.so.1", "libcudadebugger.so.1"};
constexpr int kMostLinks = 40;                               // in a path, as the kernel has it
constexpr const char* kVersioned = "libnvidia-gpucomp.so.";  // named after the driver's version

// The value of a "Name: \t value" line.
std::string ValueOf(const fs::path& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    const std::size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

// Adds the file itself: a symbolic link would lead nowhere in the container.
void AddLibrary(const std::string& root, const std::string& folder, const std::string& name,
                std::vector<Mount>& libraries) {
  const std::string file = FileOfMachine(root, folder + "/" + name);
  if (!file.empty()) libraries.push_back({file, std::string(kContainerDriver) + "/" + name});
}

std::vector<Mount> FindLibraries(const std::string& root) {
  std::vector<Mount> libraries;
  for (const char* folder : kFolders) {
    for (const char* name : kLibraries) AddLibrary(root, folder, name, libraries);
    if (libraries.empty() || !libraries[0].container.ends_with("/libcuda.so.1")) {
      libraries.clear();
      continue;
    }
    const std::string real = fs::path(libraries[0].host).filename().string();
    if (const std::string before = "libcuda.so."; real.starts_with(before))
      AddLibrary(root, folder, kVersioned + real.substr(before.size()), libraries);
    break;
  }
  return libraries;
}

}  // namespace

std::string FileOfMachine(const std::string& root, const std::string& path) {
  fs::path done("/"), left = fs::path(path).relative_path();
  for (int links = 0; !left.empty();) {
    const fs::path name = *left.begin();
    left = left.lexically_relative(name);
    if (left == ".") left.clear();
    if (name == "..") {
      done = done.parent_path();
      continue;
    }
    std::error_code error;
    const fs::path target = fs::read_symlink(root + (done / name).string(), error);
    if (error) {  // no link
      if (name != ".") done /= name;
      continue;
    }
    if (++links > kMostLinks) return "";
    left = left.empty() ? target : target / left;
    if (target.is_absolute()) done = "/";
    left = left.relative_path();
  }
  std::error_code error;
  return fs::exists(root + done.string(), error) ? done.string() : "";
}

Result<DriverFiles> FindDriverFiles(const std::string& root) {
  const std::string elsewhere = "omit --driver, and let the engine give the driver: --device nvidia.com/gpu=0";
  DriverFiles files;
  std::error_code error;
  for (const auto& gpu : fs::directory_iterator(root + "/proc/driver/nvidia/gpus", error)) {
    const std::string uuid = ValueOf(gpu.path() / "information", "GPU UUID");
    const std::string minor = ValueOf(gpu.path() / "information", "Device Minor");
    if (!uuid.empty() && !minor.empty()) files.node_of[uuid] = "/dev/nvidia" + minor;
  }
  if (files.node_of.empty()) return Fail(ENOENT, "no NVIDIA driver is loaded on this machine", elsewhere);
  for (const char* node : kNodes) {
    if (fs::exists(root + node, error)) files.nodes.emplace_back(node);
  }
  files.libraries = FindLibraries(root);
  if (files.libraries.empty())
    return Fail(ENOENT, "the driver's libcuda.so.1 is in none of the usual directories", elsewhere);
  return files;
}

Result<void> AddDriver(SpecFacts& facts, const std::string& root) {
  const auto files = FindDriverFiles(root);
  if (!files) return std::unexpected(files.error());
  facts.driver = true;
  facts.nodes = files->nodes;
  facts.mounts.insert(facts.mounts.end(), files->libraries.begin(), files->libraries.end());
  for (Device& device : facts.devices) {
    device.nodes.clear();
    for (const auto part : std::views::split(device.gpu_uuid, ',')) {
      const std::string uuid(part.begin(), part.end());
      const auto node = files->node_of.find(uuid);
      if (node == files->node_of.end())
        return Fail(ENOENT, "the driver does not know GPU " + uuid, "see 'nvidia-smi -L'");
      device.nodes.push_back(node->second);
    }
  }
  return {};
}

}  // namespace tessera::cdi
