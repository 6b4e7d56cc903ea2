#include "cli/doctor/nvml.h"

#include <dlfcn.h>

#include "base/processor/processor.h"

namespace tessera::cli {
namespace {

// Directories of the driver in distributions and containers. Full paths, because inside a vGPU the name finds Tessera's
// library.
constexpr const char* kDirectories[] = {
    TESSERA_LIBRARY_FOLDER,   "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib", "/usr/lib",
};

using Device = struct nvmlDevice_st*;
constexpr int kComputeModeExclusiveThread = 1;  // NVML's values: 0 is shared by any number of processes

// The functions of NVML that are used here; any may be missing.
struct Library {
  int (*Init)();
  int (*Shutdown)();
  int (*DriverVersion)(char* text, unsigned length);
  int (*Count)(unsigned* count);
  int (*Handle)(unsigned index, Device* device);
  int (*Name)(Device device, char* text, unsigned length);
  int (*Minor)(Device device, unsigned* minor);
  int (*ComputeMode)(Device device, int* mode);
  int (*MigMode)(Device device, unsigned* current, unsigned* pending);  // missing in old drivers

  explicit Library(void* handle) {
    Load(Init, handle, "nvmlInit_v2");
    Load(Shutdown, handle, "nvmlShutdown");
    Load(DriverVersion, handle, "nvmlSystemGetDriverVersion");
    Load(Count, handle, "nvmlDeviceGetCount_v2");
    Load(Handle, handle, "nvmlDeviceGetHandleByIndex_v2");
    Load(Name, handle, "nvmlDeviceGetName");
    Load(Minor, handle, "nvmlDeviceGetMinorNumber");
    Load(ComputeMode, handle, "nvmlDeviceGetComputeMode");
    Load(MigMode, handle, "nvmlDeviceGetMigMode");
  }
  bool Complete() const { return Init && Shutdown && DriverVersion && Count && Handle && Name && Minor && ComputeMode; }

 private:
  template <typename F>
  static void Load(F& function, void* handle, const char* name) {
    function = reinterpret_cast<F>(dlsym(handle, name));
  }
};

NvmlGpu Describe(const Library& nvml, unsigned index) {
  NvmlGpu gpu;
  Device device = nullptr;
  char name[128] = "unknown";
  int mode = 0;
  if (nvml.Handle(index, &device) != 0) return gpu;
  nvml.Name(device, name, sizeof name);
  nvml.Minor(device, &gpu.minor);
  nvml.ComputeMode(device, &mode);
  gpu.name = name;
  unsigned divided = 0, pending = 0;
  gpu.divided = nvml.MigMode && nvml.MigMode(device, &divided, &pending) == 0 && divided != 0;
  gpu.exclusive = mode >= kComputeModeExclusiveThread;
  return gpu;
}

}  // namespace

Result<NvmlFacts> AskNvml() {
  NvmlFacts facts;
  void* handle = nullptr;
  for (const char* directory : kDirectories) {
    facts.library = std::string(directory) + "/libnvidia-ml.so.1";
    handle = dlopen(facts.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
  }
  if (!handle) return Fail(ENOENT, "libnvidia-ml.so.1 is not installed", "install the NVIDIA driver's libraries");
  const Library nvml(handle);
  if (!nvml.Complete())
    return Fail(EIO, facts.library + " is not NVIDIA's library", "reinstall the NVIDIA driver's libraries");
  if (const int error = nvml.Init(); error != 0) {
    return Fail(EIO, facts.library + " cannot reach the driver (NVML error " + std::to_string(error) + ")",
                "check whether nvidia-smi works; libraries and kernel module must have the same version");
  }
  char version[80] = "";
  unsigned count = 0;
  nvml.DriverVersion(version, sizeof version);
  nvml.Count(&count);
  facts.driver_version = version;
  for (unsigned i = 0; i < count; ++i) facts.gpus.push_back(Describe(nvml, i));
  nvml.Shutdown();
  return facts;
}

}  // namespace tessera::cli
