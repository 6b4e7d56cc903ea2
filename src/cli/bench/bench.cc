#include "cli/bench/bench.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/whole_file.h"
#include "cli/bench/gpu_bench.h"
#include "cli/doctor/nvml.h"
#include "cli/terminal/output.h"

namespace tessera::cli {
namespace {

// Before a minute of measuring, not after it.
Result<void> CheckBenchOutput(const std::string& path) {
  if (path == "-") return {};
  const char* const hint = "choose another --output";
  std::error_code error;
  const std::filesystem::path file(path);
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, error)) return Fail(ENOENT, "no such directory: " + folder.string(), hint);
  if (std::filesystem::is_directory(file, error)) return Fail(EISDIR, path + " is a directory", hint);
  if (access(folder.c_str(), W_OK) != 0) return FailErrno("cannot write " + path, hint);
  return {};
}

Result<void> CheckGpu(const Common& common) {
  if (common.soft) return {};
  const auto nvml = AskNvml();
  if (nvml && !nvml->gpus.empty()) return {};
  return Fail(ENODEV, "there is no GPU to measure" + (nvml ? "" : ": " + nvml.error().message),
              "--soft tries the command on a soft GPU");
}

Result<void> CheckNobodyElse(const DemoStage& stage, bool force) {
  const auto processes = stage.client().Get("/v1/processes");
  if (!processes) return std::unexpected(processes.error());
  const std::string others = OthersOn(*processes, stage.gpu());
  if (others.empty() || force) return {};
  return Fail(EBUSY, "other programs use the GPU, and would be in the figures: " + others, "end them, or use --force");
}

std::string TodayText() {
  char text[16];
  const time_t now = time(nullptr);
  tm local;
  strftime(text, sizeof text, "%Y-%m-%d", localtime_r(&now, &local));
  return text;
}

}  // namespace

Result<int> Bench(const Common& common, const BenchChoices& choices) {
  if (auto good = CheckBenchOutput(choices.output); !good) return std::unexpected(good.error());
  if (auto good = CheckGpu(common); !good) return std::unexpected(good.error());
  CatchInterrupts();
  const auto stage = DemoStage::Set(common, choices.gpu);
  if (!stage) return std::unexpected(stage.error());
  if (auto good = CheckNobodyElse(*stage, choices.force); !good) return std::unexpected(good.error());
  if (stage->soft())
    std::fputs("tessera: this is a soft GPU, which runs on the processor: its figures say nothing of any GPU\n",
               stderr);
  GpuBench bench(*stage, [](const std::string& what) { std::fprintf(stderr, "measuring %s\n", what.c_str()); });
  auto figures = bench.Measure();
  if (!figures) return std::unexpected(figures.error());
  figures->date = TodayText();
  const std::string text = plan::FormatGpuModel(ModelOf(*figures), RemarksOn(*figures));
  if (choices.output == "-") {
    Print(text);
    return 0;
  }
  if (auto written = ReplaceFile(choices.output, text, 0644, "choose another --output"); !written)
    return std::unexpected(written.error());
  return 0;
}

}  // namespace tessera::cli
