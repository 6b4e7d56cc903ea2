#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"
#include "cli/launch/environment.h"
#include "client/api_client.h"

namespace tessera::cli {

// The surroundings of the demo, and of a measurement: a GPU, and a daemon of its own in a temporary directory, so that
// it neither needs nor disturbs another. All of it is removed afterwards, however the demo ends.
class DemoStage {
 public:
  // Uses a real GPU if there is one and `common` does not ask for the soft one: the `gpu`-th of the daemon's, from 0.
  static Result<DemoStage> Set(const Common& common, unsigned gpu = 0);
  DemoStage(DemoStage&& other) noexcept;
  DemoStage& operator=(DemoStage&&) = delete;
  ~DemoStage();

  client::ApiClient client() const { return client::ApiClient(common_.run_dir); }
  // The place of a program in the vGPU `name`.
  ProgramPlace PlaceIn(const std::string& name) const;
  // Variables for a program that uses the GPU without Tessera.
  Variables WithoutTessera() const;

  bool soft() const { return common_.soft; }
  unsigned gpu() const { return gpu_; }  // its index
  const std::string& device_name() const { return device_name_; }
  std::uint64_t memory_bytes() const { return memory_bytes_; }  // of the GPU

 private:
  DemoStage() = default;
  Result<void> StartDaemon();

  Common common_;
  unsigned gpu_ = 0;
  int daemon_pid_ = 0;
  std::string device_name_;
  std::string device_uuid_;
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace tessera::cli
