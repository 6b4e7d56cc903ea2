#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/bench/gpu_figures.h"
#include "cli/demo/demo_cast.h"
#include "cli/demo/demo_stage.h"

namespace tessera::cli {

// Measures a GPU by programs of its own (tessera-tenant), under the daemon of a stage. One thread.
class GpuBench {
 public:
  // `note` hears what is measured next. The stage outlives this.
  GpuBench(const DemoStage& stage, std::function<void(const std::string&)> note)
      : stage_(stage), note_(std::move(note)), cast_(stage) {}

  // Takes half a minute, on a soft GPU some seconds. The figures say what could not be measured here; an error is
  // what keeps programs from running at all. EINTR after SIGINT, where CatchInterrupts was called.
  Result<GpuFigures> Measure();

 private:
  using Arguments = std::vector<std::string>;

  Result<void> Alone();      // starts a busy program: memory, SMs, context
  Result<void> Freezes();    // of that program
  Result<void> Switches();   // between that one and another
  Result<void> Moves();      // of a program's memory
  Result<void> Bandwidth();  // sweeps on all SMs
  // Two programs in a space, `arguments` say what they do; nothing if there are no spaces.
  Result<std::optional<PairFigures>> Pair(const Arguments& arguments);

  Result<client::Json> Gpu() const;  // the daemon's report of it
  Result<client::Json> GpuWhenTested();
  Result<DemoTenant*> Enter(const std::string& name, const client::Json& settings, Arguments arguments);
  // Kernels a second of each, while all work. EIO: one completed too few.
  Result<std::vector<double>> Rates(const std::vector<const DemoTenant*>& tenants, double seconds);
  Result<void> Act(const std::string& name, const char* verb, const client::Json& body) const;
  // Bytes a second that `name` moved while `begin` was carried out, until `done` of its report is true.
  Result<std::optional<double>> MoveRate(const std::string& name, const char* moved,
                                         const std::function<Result<void>()>& begin,
                                         const std::function<bool(const client::Json& vgpu)>& done);
  Arguments Busy() const;
  Arguments Sweeping() const;
  std::uint64_t SweepBytes() const;
  double WindowSeconds() const { return stage_.soft() ? 0.3 : 1.0; }

  const DemoStage& stage_;
  const std::function<void(const std::string&)> note_;
  DemoCast cast_;
  GpuFigures figures_;
  bool steered_ = false;  // by channels
  std::uint64_t iterations_ = 0;
  unsigned spaces_ = 0;  // made until now
  DemoTenant* first_ = nullptr;
};

}  // namespace tessera::cli
