#include "cli/doctor/doctor_checks.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "base/install/run_dir.h"
#include "base/size.h"
#include "cli/doctor/exports.h"
#include "cli/doctor/nvml.h"
#include "cli/launch/child.h"
#include "cli/launch/daemon.h"
#include "cli/launch/environment.h"

namespace tessera::cli {
using client::ApiClient;

namespace {

using std::filesystem::path;

// More than the state that processes of soft GPUs share.
constexpr std::uint64_t kSharedMemoryBytes = 8 * kMiB;

void Add(std::vector<Finding>& findings, Verdict verdict, std::string subject, std::string detail,
         std::string advice = {}) {
  findings.push_back({verdict, std::move(subject), std::move(detail), std::move(advice)});
}

void CheckNode(std::vector<Finding>& findings, const std::string& node) {
  if (access(node.c_str(), R_OK | W_OK) == 0) return;
  const bool missing = errno == ENOENT;
  Add(findings, Verdict::kFail, "device node", node + (missing ? " is missing" : " cannot be opened by this user"),
      missing ? "run nvidia-modprobe -u -c 0 as root, or pass the device into this container"
              : "give this user read and write access to the node");
}

void CheckGpus(std::vector<Finding>& findings, const NvmlFacts& nvml) {
  if (nvml.gpus.empty()) {
    Add(findings, Verdict::kFail, "GPU", "the driver reports no GPU",
        "check the hardware, and the devices of this container");
  }
  for (std::size_t i = 0; i < nvml.gpus.size(); ++i) {
    const NvmlGpu& gpu = nvml.gpus[i];
    const std::string subject = "GPU " + std::to_string(i);
    CheckNode(findings, "/dev/nvidia" + std::to_string(gpu.minor));
    if (gpu.divided) {
      Add(findings, Verdict::kFail, subject, gpu.name + " is divided into MIG instances, which Tessera does not share",
          "run nvidia-smi -i " + std::to_string(i) + " -mig 0 as root");
    } else if (gpu.exclusive) {
      Add(findings, Verdict::kFail, subject, gpu.name + " is in exclusive mode, for one process only",
          "run nvidia-smi -i " + std::to_string(i) + " -c DEFAULT as root");
    } else {
      Add(findings, Verdict::kOk, subject, gpu.name);
    }
  }
}

}  // namespace

Finding DriverFinding(const std::string& version, const std::string& library) {
  constexpr int kTellsEnds = 555;
  int major = 0;
  const auto read = std::from_chars(version.data(), version.data() + version.size(), major);
  const std::string found = "version " + version + ", " + library;
  if (read.ec != std::errc() || major >= kTellsEnds) return {Verdict::kOk, "driver", found, ""};
  return {Verdict::kWarn, "driver", found + ": does not report the end of work, so time limits hold only coarsely",
          "install driver 555 or newer"};
}

Finding FunctionsFinding(const std::set<std::string>& unknown) {
  constexpr std::size_t kMost = 8;
  if (unknown.empty()) return {Verdict::kOk, "functions", "the shim knows all functions of the driver", ""};
  std::string names;
  std::size_t told = 0;
  for (const std::string& name : unknown) {
    if (++told > kMost) break;
    names += (names.empty() ? "" : ", ") + name;
  }
  if (unknown.size() > kMost) names += " and " + std::to_string(unknown.size() - kMost) + " more";
  return {Verdict::kWarn, "functions",
          "the driver is newer than this version of Tessera: calls of " + names + " pass without gate and ledger",
          "update Tessera; the daemon's log names those that programs ask for"};
}

// The driver's library lies beside its NVML.
static void CheckFunctions(std::vector<Finding>& findings, const std::string& nvml) {
  const auto shim = ExportsOf(Installation::Find().Shim());
  const auto driver = ExportsOf(path(nvml).parent_path() / "libcuda.so.1");
  if (shim && driver) {
    findings.push_back(FunctionsFinding(UnknownTo(*shim, *driver)));
  } else {
    const Error& error = shim ? driver.error() : shim.error();
    Add(findings, Verdict::kWarn, "functions", error.message, "reinstall the NVIDIA driver's libraries, or Tessera");
  }
}

void CheckDriver(std::vector<Finding>& findings) {
  std::string line;
  if (!std::getline(std::ifstream("/proc/driver/nvidia/version"), line)) {
    Add(findings, Verdict::kFail, "driver", "no NVIDIA kernel module is loaded",
        "install the NVIDIA driver, or use the soft GPU with --soft");
    return;
  }
  const auto nvml = AskNvml();
  if (!nvml) {
    Add(findings, Verdict::kFail, "driver", nvml.error().message, nvml.error().hint);
    return;
  }
  findings.push_back(DriverFinding(nvml->driver_version, nvml->library));
  CheckFunctions(findings, nvml->library);
  CheckNode(findings, "/dev/nvidiactl");
  CheckNode(findings, "/dev/nvidia-uvm");
  CheckGpus(findings, *nvml);
}

void CheckSoftGpu(std::vector<Finding>& findings) {
  const std::string library = Installation::Find().SoftDriver();
  if (access(library.c_str(), R_OK) != 0) {
    Add(findings, Verdict::kFail, "soft GPU", library + " is missing", "reinstall Tessera");
    return;
  }
  struct statvfs shm;
  if (statvfs("/dev/shm", &shm) != 0) {
    Add(findings, Verdict::kFail, "soft GPU", "/dev/shm is missing", "mount a tmpfs there");
    return;
  }
  const std::uint64_t free_bytes = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  if (free_bytes < kSharedMemoryBytes) {
    Add(findings, Verdict::kFail, "soft GPU", "/dev/shm has only " + FormatSize(free_bytes) + " left",
        "free some of it, or make it larger (docker run --shm-size)");
    return;
  }
  Add(findings, Verdict::kOk, "soft GPU", "/dev/shm has " + FormatSize(free_bytes) + " for its state");
}

void CheckPrograms(std::vector<Finding>& findings, const Common& common) {
  const Installation installation = Installation::Find();
  // Without a vGPU the shim finds the driver and passes calls on, which is what this checks.
  const auto variables =
      ProgramVariables({.installation = installation, .run_dir = common.RunDirectory(), .soft = common.soft},
                       [](const char* name) { return std::getenv(name); });
  if (!variables) {
    Add(findings, Verdict::kFail, "shim", variables.error().message, variables.error().hint);
    return;
  }
  auto program = Child::Start({installation.Tenant(), "--kernels", "1", "--iterations", "1000"}, *variables);
  if (!program) {
    Add(findings, Verdict::kFail, "shim", program.error().message, "reinstall Tessera");
    return;
  }
  const std::string said = program->ReadToEnd();
  if (program->Wait() != 0) {
    Add(findings, Verdict::kFail, "shim", "a CUDA program fails under the shim: " + LastLine(said),
        common.soft ? "reinstall Tessera" : "check whether a CUDA program works without Tessera");
  } else {
    Add(findings, Verdict::kOk, "shim", "a CUDA program under the shim finds the driver and computes right results");
  }
}

void CheckRunDirectory(std::vector<Finding>& findings, const Common& common) {
  const std::string run_dir = common.RunDirectory();
  const bool exists = access(run_dir.c_str(), F_OK) == 0;
  const std::string asked = exists ? run_dir : path(run_dir).parent_path().string();
  if (access(asked.c_str(), W_OK | X_OK) == 0) {
    Add(findings, Verdict::kOk, "run directory", run_dir + (exists ? "" : ", created when it is needed"));
  } else if (access((run_dir + "/api.sock").c_str(), W_OK) == 0) {
    Add(findings, Verdict::kOk, "run directory", run_dir + ", of another user's daemon that this user may use");
  } else {
    Add(findings, Verdict::kFail, "run directory", asked + ": " + std::strerror(errno),
        "choose another with --run-dir or TESSERA_RUN_DIR");
  }
}

bool CheckDaemon(std::vector<Finding>& findings, const Common& common) {
  const auto facts = AskDaemon(ApiClient(common.RunDirectory()));
  if (facts && common.soft && !facts->soft) {
    Add(findings, Verdict::kFail, "daemon", "the running daemon manages real GPUs",
        "choose another --run-dir for --soft");
  } else if (facts) {
    Add(findings, Verdict::kOk, "daemon",
        "version " + facts->version + " is running, process " + std::to_string(facts->pid));
    return true;
  } else if (facts.error().code == ECONNREFUSED) {
    Add(findings, Verdict::kOk, "daemon", "not running; tessera run starts one");
  } else {
    Add(findings, Verdict::kFail, "daemon", facts.error().message, facts.error().hint);
  }
  return false;
}

}  // namespace tessera::cli
