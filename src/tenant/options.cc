#include "tenant/options.h"

#include <getopt.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "base/size.h"

namespace tessera::tenant {
namespace {

template <typename T>
Result<void> SetNumber(T& field, const char* text, double scale = 1) {
  double value = 0;
  const std::string_view view(text);
  const auto [end, status] = std::from_chars(view.begin(), view.end(), value);
  if (status != std::errc() || end != view.end() || value < 0 || value * scale > 4e18) {
    return Fail(EINVAL, "'" + std::string(text) + "' is not a number that fits here");
  }
  field = static_cast<T>(value * scale);
  return {};
}

Result<void> SetSize(std::uint64_t& field, const char* text) {
  const auto size = ParseSize(text);
  if (!size) return std::unexpected(size.error());
  if (*size == 0) return Fail(EINVAL, "0 bytes make no sense here");
  field = *size;
  return {};
}

Result<void> Set(bool& field) {
  field = true;
  return {};
}

struct Choice {
  const char* name;
  const char* value;  // what it is called in the help; nullptr: it takes none
  const char* help;
  Result<void> (*set)(Options&, const char* value);
};

const Choice kChoices[] = {
    {"kernel-us", "N", "length of one kernel, alone on the GPU (1000)",
     [](Options& o, const char* v) { return SetNumber(o.kernel_time, v, kMicrosecond); }},
    {"iterations", "N", "iterations of a kernel, instead of calibrating its length",
     [](Options& o, const char* v) { return SetNumber(o.iterations, v); }},
    {"blocks", "N", "blocks of a kernel (1)", [](Options& o, const char* v) { return SetNumber(o.blocks, v); }},
    {"threads", "N", "threads of a block (32)", [](Options& o, const char* v) { return SetNumber(o.threads, v); }},
    {"sweep", "SIZE", "each kernel reads and writes so much memory instead of computing",
     [](Options& o, const char* v) { return SetSize(o.sweep_bytes, v); }},
    {"seconds", "S", "how long to work (until SIGTERM)",
     [](Options& o, const char* v) { return SetNumber(o.seconds, v); }},
    {"kernels", "N", "how many kernels to launch (no bound)",
     [](Options& o, const char* v) { return SetNumber(o.kernels, v); }},
    {"depth", "N", "launches in a batch (8); 0: all of --kernels",
     [](Options& o, const char* v) { return SetNumber(o.depth, v); }},
    {"ahead", "N", "batches under way before waiting for the oldest (2)",
     [](Options& o, const char* v) { return SetNumber(o.ahead, v); }},
    {"burst", "N", "launches before a pause, which begins when they have ended (no pauses)",
     [](Options& o, const char* v) { return SetNumber(o.burst, v); }},
    {"idle-us", "N", "length of a pause (0)", [](Options& o, const char* v) { return SetNumber(o.idle_us, v); }},
    {"memory", "SIZE", "allocate and fill at the start, verify at the end (none)",
     [](Options& o, const char* v) { return SetSize(o.memory_bytes, v); }},
    {"memory-stride", "SIZE", "one word is written and checked every so many bytes (4K)",
     [](Options& o, const char* v) { return SetSize(o.memory_stride, v); }},
    {"grab", nullptr, "at the start, as on SIGUSR1 at any time: allocate until refused, say how much that was, free",
     [](Options& o, const char*) { return Set(o.grab); }},
    {"grab-chunk", "SIZE", "allocate in pieces of this size (64M)",
     [](Options& o, const char* v) { return SetSize(o.grab_chunk, v); }},
    {"grab-hold-us", "N", "how long to hold what was grabbed (0)",
     [](Options& o, const char* v) { return SetNumber(o.grab_hold_us, v); }},
    {"schedule", "FILE",
     "follow rows of second,duty_pct,memory_mib: --burst launches each time that the duty sums up to them",
     [](Options& o, const char* v) -> Result<void> {
       o.schedule = v;
       return {};
     }},
    {"schedule-wait", nullptr, "begin that at SIGUSR1, and verify memory at the next one",
     [](Options& o, const char*) { return Set(o.schedule_wait); }},
    {"report-every", "MS", "time between progress lines (100); 0: none",
     [](Options& o, const char* v) { return SetNumber(o.report_every_ms, v); }},
    {"help", nullptr, "this text", [](Options& o, const char*) { return Set(o.help); }},
};

Result<void> CheckTogether(const Options& options) {
  if (options.depth == 0 && options.kernels == 0) return Fail(EINVAL, "--depth 0 needs --kernels");
  if (!options.schedule.empty() && options.burst == 0) return Fail(EINVAL, "--schedule needs --burst");
  if (!options.schedule.empty() && options.memory_bytes) return Fail(EINVAL, "--schedule has its own memory");
  if (options.blocks == 0 || options.threads == 0) return Fail(EINVAL, "a kernel needs blocks and threads");
  if (options.kernel_time < kMicrosecond) return Fail(EINVAL, "--kernel-us must be at least 1");
  if (options.sweep_bytes % 16 != 0) return Fail(EINVAL, "--sweep must be a multiple of 16");
  if (options.memory_stride % 8 != 0) return Fail(EINVAL, "--memory-stride must be a multiple of 8");
  return {};
}

}  // namespace

Result<Options> ParseOptions(int argc, char** argv) {
  std::vector<option> long_options;
  for (const Choice& choice : kChoices) {
    const int has_value = choice.value ? required_argument : no_argument;
    long_options.push_back({choice.name, has_value, nullptr, static_cast<int>(long_options.size()) + 1});
  }
  long_options.push_back({});
  Options options;
  opterr = 0;
  optind = 1;
  for (int found; (found = getopt_long(argc, argv, "", long_options.data(), nullptr)) != -1;) {
    if (found == '?') return Fail(EINVAL, std::string("'") + argv[optind - 1] + "': unknown option or missing value");
    const Choice& choice = kChoices[found - 1];
    if (auto set = choice.set(options, optarg); !set) {
      return Fail(set.error().code, std::string("--") + choice.name + ": " + set.error().message);
    }
  }
  if (optind < argc) return Fail(EINVAL, std::string("'") + argv[optind] + "' is not an option");
  if (auto fits = CheckTogether(options); !fits) return std::unexpected(fits.error());
  return options;
}

std::string Help() {
  std::string text =
      "Usage: tessera-tenant [OPTION]...\n"
      "A CUDA program for demos, tests and measurements: launches kernels whose results it can prove, and says on\n"
      "stdout what it did, one JSON object a line (events ready, progress, oom, done).\n\n";
  for (const Choice& choice : kChoices) {
    std::string title = std::string("  --") + choice.name + (choice.value ? std::string(" ") + choice.value : "");
    title.resize(24, ' ');
    text += title + choice.help + "\n";
  }
  return text;
}

}  // namespace tessera::tenant
