// A snapshot of the daemon's figures, parsed for `tessera top`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/json.h"

namespace tessera::cli::top {

// Bytes and percent, as the API has them.
struct Gpu {
  int index = 0;
  std::string name;
  std::string control;  // "channels" or "gate"
  std::uint64_t total = 0, used = 0, promised = 0;
  double busy_pct = 0, requested_pct = 0;
  bool swaps = false;
  std::uint64_t swap_used = 0, swap_max = 0;
  std::uint64_t swap_prepared = 0;  // beside what is used
};

struct Vgpu {
  std::string name;
  int gpu = 0;
  double now_pct = 0, request_pct = 0, limit_pct = 100;
  int weight = 0;
  std::optional<int> priority;
  std::uint64_t resident = 0, swapped = 0, limit = 0;
  std::uint64_t busy_us = 0;
  std::string state;  // "frozen", "running", "waiting" or "idle"
  bool frozen_by_operator = false;
  std::size_t processes = 0;
};

struct Process {
  int pid = 0;
  std::string name;
  std::string vgpu;  // empty: it is in none
  int gpu = 0;
  std::optional<std::uint64_t> busy_us;
  // Percent of the time since the previous snapshot in which it had work for the GPU, waiting or not. The parts of a
  // vGPU's time that its processes used are not known.
  std::optional<double> work_pct;
  std::uint64_t resident = 0, swapped = 0;
  std::string state;
  bool frozen_by_operator = false;
};

struct Snapshot {
  std::int64_t time_us = 0;  // wall clock
  Nanos at = 0;              // monotonic: when it was asked for
  std::vector<Gpu> gpus;
  std::vector<Vgpu> vgpus;
  std::vector<Process> processes;
};

// Parses {"time_us", "gpus", "vgpus", "processes"}, as --json prints it; `at` is when it was asked for.
Snapshot Read(const client::Json& answers, Nanos at);

}  // namespace tessera::cli::top
