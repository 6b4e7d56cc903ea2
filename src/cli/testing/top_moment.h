// A moment for tests of `tessera top`: one GPU, three vGPUs with a program each, and one program in none.
#pragma once

#include "base/size.h"
#include "cli/top/model/top_snapshot.h"

namespace tessera::cli::top {

inline Snapshot Moment(int second = 0) {
  Snapshot moment{.time_us = 0, .at = (1000 + second) * kSecond};
  moment.gpus = {{.index = 0,
                  .name = "Tessera Soft GPU",
                  .control = "channels",
                  .total = 4 * kGiB,
                  .used = kGiB,
                  .promised = 3 * kGiB,
                  .busy_pct = 90,
                  .requested_pct = 50,
                  .swaps = true,
                  .swap_used = 0,
                  .swap_max = 11 * kGiB}};
  const auto vgpu = [](const char* name, double now, double request, int priority, std::uint64_t resident,
                       const char* state) {
    return Vgpu{.name = name,
                .gpu = 0,
                .now_pct = now,
                .request_pct = request,
                .limit_pct = 100,
                .weight = 100,
                .priority = priority,
                .resident = resident,
                .limit = kGiB,
                .busy_us = 2'000'000,
                .state = state,
                .processes = 1};
  };
  moment.vgpus = {vgpu("web", 60, 30, 8, 512 * kMiB, "running"), vgpu("batch", 30, 0, 12, 256 * kMiB, "waiting"),
                  vgpu("notebook", 0, 20, 8, 128 * kMiB, "idle")};
  const auto process = [second](int pid, const char* name, const char* in, std::uint64_t busy_ms,
                                std::uint64_t resident) {
    return Process{.pid = pid,
                   .name = name,
                   .vgpu = in,
                   .gpu = 0,
                   .busy_us = busy_ms * 1000 * second,
                   .resident = resident,
                   .state = busy_ms > 0 ? "active" : "idle"};
  };
  moment.processes = {process(30, "serve", "web", 700, 512 * kMiB), process(20, "train", "batch", 900, 256 * kMiB),
                      process(10, "jupyter", "notebook", 0, 128 * kMiB), process(40, "stray", "", 0, 64 * kMiB)};
  return moment;
}

}  // namespace tessera::cli::top
